"""More forms of failed outputs that users reported, collected after the table knew those of `held_out_corpus`."""

from __future__ import annotations

from health.log_corpus import LoggedFailure as F  # a table is easier to read with a short name

_AT = 'Traceback (most recent call last):\n  File "/srv/run/main.py", line 41, in <module>\n    main()\n'
_INFO = "lascar:73214:73214 [0] NCCL INFO NET/Plugin: Plugin load returned 2 : libnccl-net.so: cannot open shared object file: No such file or directory : when loading libnccl-net.so\n"

HELD_OUT_LATER: tuple[F, ...] = (
    F(
        "communication",
        _INFO
        + "kp-0:3468:3905 [4] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer 10.2.3.4<54862> with status=12 opcode=0 len=0 vendor err 129 (Recv)\n",
    ),
    F(
        "communication",
        _INFO
        + "gh:7038:7053 [0] ib_plugin.c:1007 NCCL WARN NET/IB : Got completion from peer 10.1.3.3<54891> with error 5, opcode 0, len 0, vendor err 249\n",
    ),
    F(
        "gpu-out-of-memory",
        _INFO + "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.\n",
    ),
    F(
        "missing-file",
        "[rank0]: FileNotFoundError: Caught FileNotFoundError in DataLoader worker process 2.\n[rank0]: Original Traceback (most recent call last):\n[rank0]: FileNotFoundError: [Errno 2] No such file or directory: '/d/0001.jpg'\n",
    ),
    F(
        "semantic-error",
        "[rank7]: Traceback (most recent call last):\n[rank7]:   File \"/home/train.py\", line 70\n[rank7]: KeyError: 'epoch'\n",
    ),
    F(
        "semantic-error",
        "worker-1  | Traceback (most recent call last):\nworker-1  | TypeError: forward() missing 1 required positional argument: 'mask'\n",
    ),
    F("semantic-error", "Fri Sep 25 16:52:57 2020[1]<stderr>:AssertionError: world size must be divisible\n"),
    F(
        "killed",
        "[INFO] [launch.py:428:sigkill_handler] Killing subprocess 13266\n[ERROR] [launch.py:434:sigkill_handler] ['python3', 'main.py'] exits with return code = -9\n",
    ),
    F(
        "core-dump",
        "[INFO] [launch.py:315:sigkill_handler] Killing subprocess 3966\n[ERROR] [launch.py:321:sigkill_handler] ['python3', 'main.py'] exits with return code = -11\n",
    ),
    F(
        "killed",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\ntrain.py FAILED\nRoot Cause (first observed failure):\n  exitcode  : -9 (pid: 22)\n  traceback : Signal 9 (SIGKILL) received by PID 22\n",
    ),
    F(
        "core-dump",
        "Root Cause (first observed failure):\n  exitcode  : -11 (pid: 22)\n  traceback : Signal 11 (SIGSEGV) received by PID 22\n",
    ),
    F("incorrect-inputs", _AT + "_csv.Error: line contains NUL\n"),
    F(
        "incorrect-inputs",
        _AT
        + "pyarrow.lib.ArrowInvalid: Could not open Parquet input source '<Buffer>': Parquet file size is 0 bytes\n",
    ),
    F("incorrect-inputs", _AT + "webdataset.handlers.ReraiseException: tarfile.ReadError: unexpected end of data\n"),
    F("incorrect-inputs", _AT + "lmdb.CorruptedError: mdb_get: MDB_CORRUPTED: Located page was wrong type\n"),
    F(
        "missing-file",
        _AT
        + "datasets.exceptions.DatasetNotFoundError: Dataset 'foo/bar' doesn't exist on the Hub or cannot be accessed.\n",
    ),
    F(
        "communication",
        _AT
        + "requests.exceptions.ReadTimeout: (ReadTimeoutError(\"HTTPSConnectionPool(host='hub', port=443): Read timed out. (read timeout=10)\"))\n",
    ),
    F(
        "communication",
        _AT
        + "urllib3.exceptions.MaxRetryError: HTTPSConnectionPool(host='api.wandb.ai', port=443): Max retries exceeded with url: /graphql\n",
    ),
    F(
        "communication",
        _AT + "wandb.errors.CommError: It appears that you do not have permission or the network is down\n",
    ),
    F(
        "permission-error",
        _AT + "requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: https://hub/api/models/foo\n",
    ),
    F(
        "permission-error",
        _AT
        + "botocore.exceptions.ClientError: An error occurred (AccessDenied) when calling the PutObject operation: Access Denied\n",
    ),
    F("permission-error", "bash: ./run.sh: Permission denied\n", 126),
    F(
        "import-error",
        _AT
        + "RuntimeError: Failed to import transformers.models.llama because of the following error:\nNo module named 'sentencepiece'\n",
    ),
    F("import-error", _AT + "ImportError: cannot import name 'packaging' from 'pkg_resources'\n"),
    F(
        "import-error",
        _AT + "OSError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.32' not found (required by fused.so)\n",
    ),
    F("syntax-error", _AT + "omegaconf.errors.ConfigAttributeError: Key 'lr' is not in struct\n"),
    F(
        "syntax-error",
        "  File \"train.py\", line 7\n    print 'x'\n          ^\nSyntaxError: Missing parentheses in call to 'print'. Did you mean print(...)?\n",
    ),
    F("semantic-error", _AT + "RuntimeError: CUDA error: invalid device function\n"),
    F(
        "cuda-init-failed",
        _AT
        + "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver\n",
    ),
    F(
        "cuda-init-failed",
        _AT
        + "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices()\n",
    ),
    F(
        "cuda-init-failed",
        "Error response from daemon: failed to create task: nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown\n",
        125,
    ),
    F("invalid-memory-access", _AT + "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"),
    F("cuda-failure", _AT + "RuntimeError: CUDA error: unknown error\n"),
    F("cuda-failure", _AT + "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling cublasGemmEx\n"),
    F(
        "nccl-watchdog",
        "[rank0]:[E1118 10:00:00 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=BROADCAST, Timeout(ms)=1800000) ran for 1800011 ms\n",
        None,
        6,
    ),
    F(
        "nccl-watchdog",
        _AT + "RuntimeError: Timed out waiting 1800000ms for recv operation to complete: monitoredBarrier timed out\n",
    ),
    F("out-of-memory", "Memory cgroup out of memory: Killed process 4121 (python) total-vm:91223344kB\n", 137),
    F("out-of-memory", "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n"),
    F(
        "gpu-out-of-memory",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`\n",
    ),
    F("shared-memory", _AT + "OSError: [Errno 24] Too many open files: '/data/part-3'\n"),
    F("disk-full", "cp: error writing '/ckpt/model.bin': No space left on device\n"),
    F("disk-full", _AT + "sqlite3.OperationalError: database or disk is full\n"),
    F(
        "checkpoint-error",
        _AT + "OSError: Unable to load weights from pytorch checkpoint file for 'ckpt/pytorch_model.bin'.\n",
    ),
    F("checkpoint-error", "HDFS: org.apache.hadoop.hdfs.BlockMissingException: Could not obtain block: blk_1073\n"),
    F(
        "model-diverged",
        "AssertionError: found NaN in local grad norm in backward pass before data-parallel communication collective. Device: 3\n",
    ),
    F("model-diverged", _AT + "ValueError: Loss is not finite: inf, stopping\n"),
    F("mpi-runtime-failure", "ORTE was unable to reliably start one or more daemons.\n"),
    F(
        "mpi-runtime-failure",
        "srun: error: h7: task 3: Exited with exit code 1\nsrun: error: Timed out waiting for job step to complete\n",
    ),
    F("preempted", "Instance i-0abc was reclaimed: spot interruption notice received\n", 143),
    F("device", "kernel: NVRM: Xid (PCI:0000:5e:00): 46, pid=11, GPU stopped processing\n"),
    F(
        "nvlink-error",
        "kernel: nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error\n",
    ),
    F(
        "gpu-lost",
        "torch.cuda.DeferredCudaCallError: CUDA call failed lazily at initialization with error: device >= 0 && device < num_gpus INTERNAL ASSERT FAILED; NVML: GPU is lost\n",
    ),
)
