"""Longer ends of outputs, several ranks and launchers mixed, written down before the table was tried on them."""

from __future__ import annotations

from health.log_corpus import LoggedFailure as F  # a table is easier to read with a short name

_AT = 'Traceback (most recent call last):\n  File "/workspace/pretrain.py", line 212, in <module>\n    main(args)\n'
_ELASTIC = (
    "E1014 03:12:44.118000 88 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 3 (pid: 131) of binary: /usr/bin/python3\n"
    + 'Traceback (most recent call last):\n  File "/usr/local/bin/torchrun", line 8, in <module>\n    sys.exit(main())\n'
    + "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n============================================================\npretrain.py FAILED\n"
    + "------------------------------------------------------------\nRoot Cause (first observed failure):\n[0]:\n  time      : 2025-10-14_03:12:44\n  host      : gpu-a17\n  rank      : 11 (local_rank: 3)\n  exitcode  : 1 (pid: 131)\n  error_file: <N/A>\n  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html\n"
)
_FIT = 'Traceback (most recent call last):\n  File "/app/run.py", line 9, in <module>\n    fit()\n'
_SLURM = "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\nslurmstepd: error: *** STEP 91822.0 ON gpu-a17 CANCELLED AT 2025-10-14T03:12:51 ***\nsrun: error: gpu-a18: tasks 8-15: Terminated\n"

HELD_OUT_THIRD: tuple[F, ...] = (
    F(
        "ecc-error",
        "[rank11]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n[rank11]: CUDA kernel errors might be asynchronously reported at some other API call\n[rank3]:[E1014 03:12:40.1 ProcessGroupNCCL.cpp:629] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=88112, OpType=ALLREDUCE) ran for 600023 milliseconds before timing out.\n"
        + _ELASTIC,
    ),
    F(
        "gpu-out-of-memory",
        "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB. GPU 2 has a total capacity of 79.15 GiB of which 1.01 GiB is free.\n"
        "[rank5]:[E1014 ProcessGroupNCCL.cpp:1895] [PG ID 0 PG GUID 0 Rank 5] Process group watchdog thread terminated with exception: NCCL error: remote process exited or there was a network error\n"
        + _ELASTIC
        + _SLURM,
    ),
    F(
        "nccl-watchdog",
        "[rank0]:[E1014 05:00:02 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4411, OpType=_ALLGATHER_BASE, NumelIn=524288, Timeout(ms)=1800000) ran for 1800058 milliseconds before timing out.\n"
        "[rank0]:[E1014 ProcessGroupNCCL.cpp:685] To avoid data inconsistency, we are taking the entire process down.\nterminate called after throwing an instance of 'c10::DistBackendError'\n  what():  [PG 0 Rank 0] Process group watchdog thread terminated\nFatal Python error: Aborted\n",
    ),
    F(
        "communication",
        "gpu-b04:2210:2399 [5] misc/socket.cc:58 NCCL WARN socketProgress: Connection closed by remote peer gpu-b09.cluster.local<48822>\n[rank13]: torch.distributed.DistBackendError: NCCL error in: /opt/pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:2006, remote process exited or there was a network error, NCCL version 2.21.5\n"
        "[rank13]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
        + _ELASTIC,
    ),
    F(
        "communication",
        "[W socket.cpp:697] [c10d] The client socket has failed to connect to [head-0]:29500 (errno: 110 - Connection timed out).\ntorch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying to connect to (head-0, 29500).\n",
    ),
    F(
        "out-of-memory",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=91822.0. Some of the step tasks have been OOM Killed.\nsrun: error: gpu-a17: task 3: Out Of Memory\n",
    ),
    F(
        "out-of-memory",
        _AT
        + "RuntimeError: DataLoader worker (pid(s) 40113, 40114) exited unexpectedly\ndmesg: Memory cgroup out of memory: Killed process 40113 (python) total-vm:91234kB\n",
    ),
    F(
        "preempted",
        "epoch 3: 44%|####4     | 911/2071\nslurmstepd: error: *** JOB 77120 ON gpu-a17 CANCELLED AT 2025-10-14T08:00:00 DUE TO PREEMPTION ***\n",
    ),
    F(
        "time-limit",
        "step 19000 | loss 2.11\nslurmstepd: error: *** JOB 77121 ON gpu-a17 CANCELLED AT 2025-10-14T08:00:00 DUE TO TIME LIMIT ***\n",
    ),
    F(
        "mpi-runtime-failure",
        "slurmstepd: error: *** JOB 77122 ON gpu-a17 CANCELLED AT 2025-10-14T08:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n",
    ),
    F(
        "gpu-lost",
        "Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error\n[rank4]: RuntimeError: CUDA error: unspecified launch failure\n",
    ),
    F(
        "cuda-init-failed",
        _AT
        + "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() that might have already set an error? Error 802: system not yet initialized\n",
    ),
    F(
        "cuda-init-failed",
        "docker: Error response from daemon: failed to create task for container: OCI runtime create failed: nvidia-container-cli: initialization error: nvml error: driver/library version mismatch: unknown.\n",
    ),
    F(
        "nvlink-error",
        "[ 8811.2] nvidia-nvswitch3: SXid (PCI:0000:c4:00.0): 12028, Non-fatal, Link 42 egress non-posted PRIV error\n[rank6]: RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution\n",
    ),
    F(
        "invalid-memory-access",
        "../aten/src/ATen/native/cuda/Indexing.cu:1289: indexSelectLargeIndex: block: [410,0,0], thread: [96,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\n[rank0]: RuntimeError: CUDA error: device-side assert triggered\n"
        + _ELASTIC,
    ),
    F(
        "semantic-error",
        "[rank1]: RuntimeError: The size of tensor a (2049) must match the size of tensor b (2048) at non-singleton dimension 1\n"
        + _ELASTIC,
    ),
    F(
        "semantic-error",
        _AT
        + "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that your module has parameters that were not used in producing loss.\n",
    ),
    F(
        "semantic-error",
        _AT + "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn\n",
    ),
    F(
        "semantic-error",
        "jax.errors.TracerArrayConversionError: The numpy.ndarray conversion method __array__() was called on traced array with shape float32[8,128]\n",
    ),
    F(
        "gpu-out-of-memory",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.\n",
    ),
    F(
        "gpu-out-of-memory",
        "2025-10-14 03:12:44.1 W tensorflow/core/common_runtime/bfc_allocator.cc:497] Allocator (GPU_0_bfc) ran out of memory trying to allocate 9.77GiB\ntensorflow.python.framework.errors_impl.ResourceExhaustedError: {{function_node __wrapped__Conv2D}} OOM when allocating tensor with shape[64,512,224,224] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:Conv2D]\n",
    ),
    F(
        "checkpoint-error",
        _AT
        + "RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 704 vs 598\nOSError: [Errno 5] Input/output error\n",
    ),
    F(
        "checkpoint-error",
        _AT
        + "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys([3])\nTraceback (most recent call last): (RANK 3)\nOSError: [Errno 116] Stale file handle: '/lustre/ckpt/step_9000/.metadata.tmp'\n",
    ),
    F(
        "disk-full",
        _AT
        + 'safetensors_rust.SafetensorError: Error while serializing: IoError(Os { code: 28, kind: StorageFull, message: "No space left on device" })\n',
    ),
    F(
        "out-of-scratch",
        "cp: error writing '/home/ada/ckpt/model.pt': Disk quota exceeded\n",
    ),
    F(
        "missing-file",
        _AT
        + "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder for the specified revision on the local disk and outgoing traffic has been disabled.\n",
    ),
    F(
        "permission-error",
        _AT
        + "huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: Root=1-68)\nCannot access gated repo for url https://huggingface.co/meta-llama/Llama-3.1-8B/resolve/main/config.json.\n",
    ),
    F(
        "permission-error",
        "Fatal: wandb: ERROR Error while calling W&B API: permission denied (<Response [403]>)\nwandb.errors.errors.CommError: Error while calling W&B API: permission denied (<Response [403]>)\n",
    ),
    F(
        "communication",
        _AT
        + "requests.exceptions.ConnectionError: (ProtocolError('Connection aborted.', RemoteDisconnected('Remote end closed connection without response')), '(Request ID: 8c)')\n",
    ),
    F(
        "model-diverged",
        "WARNING: gradient norm is nan, skipping (5/5)\nException: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.\n",
    ),
    F(
        "model-diverged",
        "AssertionError: Rank 3, local_rank 3, device 3, iteration 1711: Unexpected result nan (message='found NaN in local grad norm for bucket #0 in backward pass before data-parallel communication collective')\n",
    ),
    F(
        "shared-memory",
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\nRuntimeError: DataLoader worker (pid 3122) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.\n",
    ),
    F(
        "core-dump",
        "[gpu-a17:40112] *** Process received signal ***\n[gpu-a17:40112] Signal: Segmentation fault (11)\n[gpu-a17:40112] Signal code: Address not mapped (1)\n[gpu-a17:40112] [ 0] /lib/x86_64-linux-gnu/libc.so.6(+0x42520)[0x7f]\n",
    ),
    F(
        "mpi-runtime-failure",
        "--------------------------------------------------------------------------\nORTE has lost communication with a remote daemon.\n\n  HNP daemon   : [[12872,0],0] on node gpu-a17\n  Remote daemon: [[12872,0],4] on node gpu-a21\n\nThis is usually due to either a failure of the TCP network connection to the node, or possibly an internal failure of the daemon itself.\n",
    ),
    F(
        "killed",
        "/var/spool/slurmd/job77123/slurm_script: line 31: 40112 Killed                  python pretrain.py --config base.yaml\n",
    ),
    F(
        "syntax-error",
        "usage: pretrain.py [-h] [--lr LR] [--config CONFIG]\npretrain.py: error: argument --lr: invalid float value: '3e-4x'\n",
    ),
    F(
        "import-error",
        _AT
        + "RuntimeError: Failed to import transformers.models.llama.modeling_llama because of the following error (look up to see its traceback):\n/usr/lib/python3/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: _ZN3c104cuda9SetDeviceEi\n",
    ),
    F(
        "incorrect-inputs",
        _AT
        + "pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in footer. Either the file is corrupted or this is not a parquet file.\n",
    ),
    F(
        "thermal",
        "[ 9921.1] mce: [Hardware Error]: Machine check events logged\n[ 9921.2] EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0\nBus error (core dumped)\n",
    ),
    F(
        "device",
        "[rank2]: RuntimeError: CUDA error: unknown error\n[ 1200.2] NVRM: Xid (PCI:0000:9b:00): 119, pid=40112, name=python, Timeout after 6s of waiting for RPC response from GPU2 GSP! Expected function 76 (GSP_RM_CONTROL)\n",
    ),
    F(
        "communication",
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n\tclass_name: RayTrainWorker\n The actor is dead because its node has died. Node Id: 7fae\nthe node which this task was running on: missed too many heartbeats\n",
    ),
    F(
        "cuda-failure",
        "[rank0]: RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle, opa, opb, m, n, k, &falpha, a, CUDA_R_16BF, lda)`\n"
        + _ELASTIC,
    ),
    # written after the table knew those above
    F(
        "gpu-out-of-memory",
        _FIT
        + "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB (GPU 0; 39.39 GiB total capacity)\nSee documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF\n",
    ),
    F(
        "gpu-out-of-memory",
        _FIT
        + "RuntimeError: NCCL Error 1: unhandled cuda error (run with NCCL_DEBUG=INFO for details)\nnode1:88:99 [0] include/alloc.h:246 NCCL WARN Cuda failure 2 'out of memory'\n",
    ),
    F(
        "communication",
        "node1:88:99 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB: Got completion from peer 10.0.0.3<40000> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_RDMA_WRITE(1)\n",
    ),
    F(
        "communication",
        "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.7]:31337\n",
    ),
    F(
        "communication",
        _FIT
        + "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 12/16 clients joined.\n",
    ),
    F(
        "nccl-watchdog",
        "[E ProcessGroupNCCL.cpp:1413] [PG 2 Rank 6] Exception (either an error or timeout) detected by watchdog at work: 12291, last enqueued NCCL work: 12292, last completed NCCL work: 12290.\n[E ProcessGroupNCCL.cpp:607] [Rank 6] Timeout at NCCL work: 12291\n",
    ),
    F(
        "nccl-watchdog",
        "[F ProcessGroupNCCL.cpp:1250] [PG 0 Rank 3] [PG 0 Rank 3] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives.\n",
    ),
    F(
        "ecc-error",
        "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: uncorrectable ECC error encountered\nAborted (core dumped)\n",
    ),
    F(
        "ecc-error",
        "NVRM: Xid (PCI:0000:07:00): 95, pid=1234, name=python3, Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No\n",
    ),
    F(
        "gpu-lost",
        "NVRM: GPU at PCI:0000:41:00: GPU-3a\nNVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n",
    ),
    F(
        "invalid-memory-access",
        "RuntimeError: CUDA error: an illegal memory access was encountered\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\nException raised from c10_cuda_check_implementation at ../c10/cuda/CUDAException.cpp:44\nterminate called after throwing an instance of 'c10::Error'\n",
    ),
    F(
        "cuda-init-failed",
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver\n",
    ),
    F("cuda-init-failed", _FIT + "AssertionError: Torch not compiled with CUDA enabled\n"),
    F(
        "cuda-init-failed",
        "jax._src.xla_bridge RuntimeError: Unable to initialize backend 'cuda': INTERNAL: no supported devices found for platform CUDA\n",
    ),
    F(
        "import-error",
        _FIT
        + "ImportError: /lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by /opt/x.so)\n",
    ),
    F("import-error", "OSError: libcudart.so.12: cannot open shared object file: No such file or directory\n"),
    F("missing-file", "python: can't open file '/app/trian.py': [Errno 2] No such file or directory\n"),
    F("missing-file", "/bin/bash: line 1: accelerat: command not found\n"),
    F(
        "missing-file",
        _FIT
        + "OSError: Incorrect path_or_model_id: './models/llama'. Please provide either the path to a local folder or the repo_id of a model on the Hub.\n",
    ),
    F("permission-error", "mkdir: cannot create directory '/data/out': Permission denied\n"),
    F(
        "permission-error",
        _FIT
        + "botocore.exceptions.ClientError: An error occurred (AccessDenied) when calling the GetObject operation: Access Denied\n",
    ),
    F(
        "missing-file",
        _FIT
        + "botocore.errorfactory.NoSuchKey: An error occurred (NoSuchKey) when calling the GetObject operation: The specified key does not exist.\n",
    ),
    F("disk-full", "OSError: [Errno 28] No space left on device: '/tmp/torch_ext/build.ninja'\n"),
    F(
        "checkpoint-error",
        _FIT + "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory\n",
    ),
    F(
        "semantic-error",
        _FIT
        + 'RuntimeError: Error(s) in loading state_dict for GPT:\n\tMissing key(s) in state_dict: "h.0.attn.bias".\n',
    ),
    F(
        "semantic-error",
        _FIT
        + 'torch.fx.experimental.symbolic_shapes.ConstraintViolationError: Constraints violated (batch)! For more information, run with TORCH_LOGS="+dynamic"\n',
    ),
    F(
        "semantic-error",
        _FIT + "torch._dynamo.exc.Unsupported: call_function UserDefinedObjectVariable(Tokenizer) [] {}\n",
    ),
    F("semantic-error", "RuntimeError: Boolean value of Tensor with more than one value is ambiguous\n"),
    F(
        "semantic-error",
        _FIT
        + "lightning.fabric.utilities.exceptions.MisconfigurationException: No `training_step()` method defined.\n",
    ),
    F("model-diverged", "ValueError: loss is nan at step 1200, stopping\n"),
    F("model-diverged", "Loss is nan, stopping training\n"),
    F(
        "out-of-memory",
        "Killed process 3312 (python3) total-vm:...\nMemory cgroup out of memory: Killed process 3312 (python3)\n",
    ),
    F("out-of-memory", "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n"),
    F(
        "out-of-memory",
        _FIT
        + "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 745. GiB for an array with shape (100000000000,) and data type float64\n",
    ),
    F("syntax-error", '  File "/app/run.py", line 3\n    def f(:\n          ^\nSyntaxError: invalid syntax\n'),
    F("syntax-error", "hydra.errors.ConfigCompositionException: Could not override 'model.size'.\n"),
    F(
        "incorrect-inputs",
        _FIT + "datasets.exceptions.DatasetGenerationError: An error occurred while generating the dataset\n",
    ),
    F(
        "mpi-error",
        "[gpu-1:331] *** An error occurred in MPI_Allreduce\n[gpu-1:331] *** MPI_ERR_TRUNCATE: message truncated\n[gpu-1:331] *** MPI_ERRORS_ARE_FATAL\n",
    ),
    F(
        "mpi-error",
        "[1700000000.1] [gpu-1:331:0] ib_mlx5_log.c:177 UCX  ERROR Transport retry count exceeded on mlx5_0:1/IB\n",
    ),
    F(
        "mpi-runtime-failure",
        "srun: error: Node failure on gpu-4\nsrun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n",
    ),
    F("core-dump", "free(): invalid pointer\n"),
    F(
        "core-dump",
        "#\n# A fatal error has been detected by the Java Runtime Environment:\n#\n#  SIGSEGV (0xb) at pc=0x00007f\n",
    ),
    F(
        "nvlink-error",
        "RuntimeError: CUDA error: CUDA_ERROR_NVLINK_UNCORRECTABLE\nfabricmanager: detected NVSwitch fatal error 20034 on NVSwitch pci 00000000:05:00.0\n",
    ),
    F("preempted", "2025-11-02T11:00:00Z Received preemption notice from metadata server; saving checkpoint\n"),
)
