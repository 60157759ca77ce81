#!/bin/bash
grep -q right /app/out && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt
