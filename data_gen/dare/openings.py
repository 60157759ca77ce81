"""The first sentences of questions; a question draws one by its own seed."""

from __future__ import annotations

EXACT = (
    "Complete the task below without asking questions. ",
    "Solve the following without any follow-up question; all you need is given. ",
    "Carry out the steps below exactly as they are written; nobody will answer questions. ",
    "You are handed a small modelling job that is specified to the last step. ",
    "Please reproduce the following analysis step by step, without asking back. ",
    "Here is a recipe for a model; follow it to the letter. ",
    "The plan for this model is fixed, so implement it as described and ask nothing. ",
    "A colleague wrote down a model in words; turn it into predictions as specified. ",
    "Everything needed for this task is stated here or in the files, so proceed at once. ",
    "Follow these instructions precisely: the predictions are compared with a reference. ",
    "Your job is to run the pipeline described here and deliver its predictions. ",
    "We need the predictions of one particular model, built exactly like this. ",
    "Work through the task below on your own and keep to every stated detail. ",
    "Please build the model specified below; assume that nothing else is required. ",
)
FREE = (
    "Complete the task below without asking questions. Aim for good predictions in little time. ",
    "Solve the following without any follow-up question; balance accuracy against running time. ",
    "You choose the model here: what counts is how good the predictions are. ",
    "Please build the best predictor you can in the time there is, without asking back. ",
    "Here is a prediction problem with the files it needs; the method is yours to choose. ",
    "The goal of this task is accuracy on unseen rows, within a short running time. ",
    "Everything needed is in the files, so proceed without further questions. ",
    "We are looking for accurate predictions; how you obtain them is up to you. ",
    "Treat this as a small forecasting or modelling contest with a clock. ",
    "Find a model that predicts well and trains quickly; no questions will be answered. ",
    "Work on the following problem on your own; only the quality of the answers is judged. ",
    "Please make as good a prediction as you can for the problem below, and keep it quick. ",
    "You are given data and a target; deliver predictions that are as accurate as possible. ",
    "Any approach is welcome for this task, as long as it runs on a CPU in reasonable time. ",
)
