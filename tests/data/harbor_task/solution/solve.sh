#!/bin/bash
echo right > /app/out
