"""Megatron-LM's arguments that are no field of a launch, without their dashes: those that change a step in ways that no
plan knows, which whoever imports them is told, and those that change none: data, checkpoints, logs, learning rates. Any
other is refused.
"""


def named(words: str) -> frozenset[str]:
    """Arguments of these names."""
    return frozenset(f"--{word}" for word in words.split())


UNPRICED_SWITCHES = named("""
apply-query-key-layer-scaling attention-softmax-in-fp32 cross-entropy-loss-fusion ddp-average-in-collective
ddp-pad-buckets-for-high-nccl-busbw defer-embedding-wgrad-compute delay-wgrad-compute deterministic-mode
enable-cuda-graph external-cuda-graph first-last-layers-bf16 fp8-param-gather fsdp-double-buffer
fsdp-manual-registration init-model-with-meta-device keep-fp8-transpose-cache moe-pad-expert-input-to-capacity
moe-permute-fusion moe-router-fusion moe-shared-expert-overlap no-bias-dropout-fusion no-bias-gelu-fusion
no-bias-swiglu-fusion no-gradient-accumulation-fusion no-masked-softmax-fusion no-overlap-p2p-communication
no-persist-layer-norm no-rope-fusion no-tp-comm-bulk-dgrad no-tp-comm-bulk-wgrad no-tp-comm-overlap-ag
no-tp-comm-overlap-rs no-tp-comm-split-ag no-tp-comm-split-rs overlap-p2p-communication-warmup-flush
overlap-param-gather-with-optimizer-step reuse-grad-buf-for-mxfp8-param-ag tp-comm-overlap-rs-dgrad use-flash-attn
use-fused-weighted-squared-relu use-nccl-ub use-ring-exchange-p2p use-sharp use-te-activation-func
""")
UNPRICED = named("""
attention-backend attention-dropout cross-entropy-fusion-impl cuda-graph-impl cuda-graph-modules cuda-graph-scope
ddp-bucket-size ddp-num-buckets exp-avg-dtype exp-avg-sq-dtype flash-attention-version fp8-amax-compute-algo
fp8-amax-history-len fp8-interval fp8-margin fp8-recipe hidden-dropout main-grads-dtype main-params-dtype
megatron-fsdp-grad-comm-dtype megatron-fsdp-main-grads-dtype megatron-fsdp-main-params-dtype
microbatch-group-size-per-virtual-pipeline-stage moe-flex-dispatcher-backend moe-router-dtype num-layers-at-end-in-bf16
num-layers-at-start-in-bf16 pipeline-model-parallel-comm-backend tp-comm-bootstrap-backend tp-comm-overlap-cfg
transformer-impl wgrad-deferral-limit
""")
OTHER_SWITCHES = named("""
accumulate-allreduce-grads-in-fp32 adlr-autoresume apply-layernorm-1p apply-wd-to-qk-layernorm async-ckpt-use-cpu-shm
async-save auto-detect-ckpt-format calculate-per-token-loss check-for-large-grads check-for-spiky-loss
ckpt-assume-constant-structure ckpt-fully-parallel-load ckpt-fully-parallel-save data-parallel-random-init
dataloader-fast-cache-load disable-bf16-reduced-precision-matmul disable-gloo-process-groups disable-msc
disable-straggler-on-startup dist-ckpt-optim-fully-reshardable dist-ckpt-save-pre-mcore-014 enable-experimental
enable-ft-package enable-msc eod-mask-loss exit-on-missing-checkpoint exit-signal-handler finetune full-validation
init-method-xavier-uniform log-device-memory-used log-energy log-max-attention-logit log-memory-to-tensorboard
log-num-zeros-in-grad log-params-norm log-progress log-straggler log-throughput log-timers-to-tensorboard
log-validation-ppl-to-tensorboard log-world-size-to-tensorboard manual-gc mock-data moe-per-layer-logging
no-barrier-with-level-1-timing no-check-for-nan-in-loss-and-grad no-ckpt-fully-parallel-save
no-create-attention-mask-in-dataloader no-data-sharding no-initialization no-load-optim no-load-rng no-mmap-bin-files
no-one-logger no-position-embedding no-save-optim no-save-rng no-use-tokenizer-model-from-checkpoint-args nvtx-ranges
one-logger-async override-opt-param-scheduler override-opt_param-scheduler profile record-memory-history
reset-attention-mask reset-position-ids rotary-interleaved te-rng-tracker test-mode tokenizer-hf-no-use-fast
trust-remote-code use-checkpoint-args use-checkpoint-opt-param-scheduler use-checkpoint-opt_param-scheduler
use-cpu-initialization use-dist-ckpt use-mcore-models use-persistent-ckpt-worker use-pytorch-profiler verify-integrity
""")
OTHER = named("""
adam-beta1 adam-beta2 adam-eps app-tag-run-name app-tag-run-version async-strategy
check-weight-hash-across-dp-replicas-interval ckpt-step clip-grad config-logger-dir data-args-path data-cache-path
data-path dataloader-type decoupled-lr decoupled-min-lr dist-ckpt-format dist-ckpt-strictness distributed-backend
distributed-timeout-minutes embedding-init-method-std empty-unused-memory-level end-weight-decay eval-interval
eval-iters eval-micro-batch-size exit-duration-in-mins exit-interval ft-num-warmup-iters high-priority-stream-groups
hysteresis init-method-std initial-loss-scale load log-interval log-memory-interval logging-level loss-scale
loss-scale-window lr lr-decay-iters lr-decay-samples lr-decay-style lr-warmup-fraction lr-warmup-init lr-warmup-iters
lr-warmup-samples lr-wsd-decay-iters lr-wsd-decay-samples lr-wsd-decay-style manual-gc-interval memory-snapshot-path
merge-file min-loss-scale min-lr moe-router-bias-update-rate moe-router-group-topk moe-router-load-balancing-type
moe-router-num-groups moe-router-topk-scaling-factor moe-token-drop-policy moe-z-loss-coeff mscale mscale-all-dim
non-persistent-ckpt-type non-persistent-save-interval num-dataset-builder-threads num-workers object-storage-cache-path
one-logger-project one-logger-run-name per-split-data-args-path pretrained-checkpoint profile-ranks profile-step-end
profile-step-start rerun-mode rope-type save save-interval save-retain-interval seed sgd-momentum split
start-weight-decay straggler-minmax-count tensorboard-dir tensorboard-log-interval tensorboard-queue-size test-data-path
tiktoken-num-special-tokens tiktoken-pattern timing-log-level timing-log-option tokenizer-metadata tokenizer-model
tokenizer-special-tokens tokenizer-type train-data-path train-iters train-samples valid-data-path vocab-extra-ids
vocab-file wandb-entity wandb-exp-name wandb-project wandb-save-dir weight-decay weight-decay-incr-style
""")
