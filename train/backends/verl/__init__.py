"""Dr.GRPO over many GPUs: verl's trainer with Assay's tasks, episodes, rewards and exact loss.

Importing this package imports neither verl nor ray; the modules that need them say so. Needs the
extra `cluster` (docs/clusters.md).

What verl 0.9.1 does otherwise, mostly without a message, and what Assay does about it (tests:
tests/train/backends/verl):

1. if the length normaliser is unset, the loss depends on the size of the micro-batch: the
    normaliser is always `rl.max_new_tokens`.
2. a tool object lives for one call: each trajectory has one environment, which is closed also
    after an error.
3. writing to `extra_fields` too early ends step 1 with a TypeError: they are written once, at the
    end, with the versions of the weights.
4. measurements of tools are thrown away: counts and seconds are in `reward_extra_info`.
5. the scored text contains output of tools: only the model's last message is scored.
6. a reward that raises an error, or is None, loses its whole group: the reward never raises; a
    rollout without an outcome is left out, printed and counted; files and tools of tasks are
    checked before the run.
7. rows with different keys are filled with None: fields of free form are JSON text.
8. the sandbox is gone when the reward is computed: the answer is scored in the loop, from files
    that are kept when the sandbox closes.
9. of several tool calls in a turn only the first is answered: every call is answered.
10. results of tools are cut to 256 characters, and one that does not fit is dropped: results are
    whole; where one does not fit, the trajectory ends as cut off.
11. a call with bad JSON ends the trajectory: the model is told what is wrong.
12. wrong names of rollouts and estimators pass its check: Assay sets them, and refuses a second
    value.
13. its section of reward settings cannot be built as a dataclass: it is never built.
14. log-probabilities are those before top-p and top-k: `--dry-run` says so; the preset `dr_grpo`
    samples from the whole distribution.
15. nested schemas of tools lose `items` and other keys: Assay renders the schemas itself.
16. `actor/entropy` is scaled like the loss: `actor/entropy_nats` is logged beside it.
17. parts of the reward are logged in validation only: `reward/<part>/mean`, `outcome/mean`,
    `rollout/tool_calls/mean` are logged at every step.
18. its example job script gives workers empty names: names are read with `mapfile`.
19. pip cannot install `verl[sglang]`: no extra asks for it; `slurm/gpu-overrides.txt`,
    `slurm/gpu*.lock`.
20. it needs the package TransferQueue and does not ask for it: the extra `cluster` pins it.
21. a resumed run empties the file of metrics: each start has its own file,
    `out/verl/metrics_start_NNN.jsonl`.
22. SmolLM2 taken from its GGUF file ends turns with `<|im_start|>`: turns end with `<|im_end|>`.
"""
