"""Ends of outputs as real failures write them, with the cause that a person would name.

Names, paths and numbers are invented; the forms are those of PyTorch, TensorFlow, JAX, NCCL, Open MPI, Slurm, Linux
and Python. Many end with what follows from the cause: tracebacks of launchers, aborts, warnings of other ranks.
"""

from __future__ import annotations

from typing import NamedTuple


class LoggedFailure(NamedTuple):
    """An output, how the process ended, and the cause."""

    cause: str
    output: str
    exit_code: int | None = 1
    signal: int | None = None


def _trace(last: str, where: str = "train.py") -> str:
    return f"""epoch 3 step 1200 loss 2.31
Traceback (most recent call last):
  File "/home/ada/{where}", line 218, in <module>
    main()
  File "/home/ada/{where}", line 97, in main
    loss = step(model, batch)
{last}
"""


_TORCHRUN = """E1116 10:22:01.773 4711 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 0
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
Root Cause (first observed failure):
  exitcode  : 1 (pid: 4711)
============================================================
"""

CORPUS: tuple[LoggedFailure, ...] = (
    # out of memory, on the GPU and on the host
    LoggedFailure(
        "gpu-out-of-memory",
        _trace(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of "
            "79.15 GiB of which 1.20 GiB is free."
        )
        + _TORCHRUN,
    ),
    LoggedFailure(
        "gpu-out-of-memory",
        "2026-11-02 09:01:11.1 W tensorflow/core/framework/op_kernel.cc:1830] OP_REQUIRES failed\n"
        "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape"
        "[64,1024,1024] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc\n",
    ),
    LoggedFailure(
        "gpu-out-of-memory",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.\n",
    ),
    LoggedFailure(
        "gpu-out-of-memory",
        _trace("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ),
    LoggedFailure(
        "out-of-memory",
        _trace(
            "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 74.5 GiB for an array with shape (100000, 100000)"
        ),
    ),
    LoggedFailure("out-of-memory", _trace("MemoryError", "prepare.py")),
    LoggedFailure(
        "out-of-memory",
        "loading shards 311/512\nterminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\nAborted (core dumped)\n",
        None,
        6,
    ),
    LoggedFailure("out-of-memory", _trace("RuntimeError: DataLoader worker (pid 8812) is killed by signal: Killed. ")),
    LoggedFailure(
        "out-of-memory",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=991.0. Some of the step tasks have been OOM Killed.\n",
        137,
    ),
    LoggedFailure(
        "shared-memory",
        _trace("RuntimeError: unable to write to file </torch_4411_2911_0>: No space left on device (28)").replace(
            "No space left on device (28)", ""
        ),
    ),
    LoggedFailure(
        "shared-memory",
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n",
        None,
        7,
    ),
    # the user's program
    LoggedFailure("import-error", _trace("ModuleNotFoundError: No module named 'flash_attn'")),
    LoggedFailure(
        "import-error",
        _trace("ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory"),
    ),
    LoggedFailure(
        "import-error",
        "WARNING: apex is not there, going on\nImportError: /opt/x/fused.so: undefined symbol: _ZN3c104cuda20CUDACachingAllocator9allocatorE\n",
    ),
    LoggedFailure(
        "syntax-error", '  File "train.py", line 12\n    lr == = 3e-4\n          ^\nSyntaxError: invalid syntax\n'
    ),
    LoggedFailure("syntax-error", '  File "train.py", line 40\n    return x\nIndentationError: unexpected indent\n'),
    LoggedFailure(
        "syntax-error",
        "usage: train.py [-h] [--lr LR]\ntrain.py: error: unrecognized arguments: --learning-rate 0.1\n",
        2,
    ),
    LoggedFailure(
        "syntax-error", _trace("json.decoder.JSONDecodeError: Expecting ',' delimiter: line 3 column 9 (char 44)")
    ),
    LoggedFailure(
        "semantic-error", _trace("RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x512 and 768x10)")
    ),
    LoggedFailure("semantic-error", _trace("KeyError: 'input_ids'") + _TORCHRUN),
    LoggedFailure("semantic-error", _trace("AttributeError: 'NoneType' object has no attribute 'shape'")),
    LoggedFailure("semantic-error", _trace("TypeError: forward() got an unexpected keyword argument 'mask'")),
    LoggedFailure(
        "semantic-error", _trace("ValueError: Expected input batch_size (32) to match target batch_size (31).")
    ),
    LoggedFailure(
        "semantic-error",
        _trace(
            "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"
        ),
    ),
    LoggedFailure(
        "semantic-error",
        _trace(
            "RuntimeError: Error(s) in loading state_dict for GPT:\n\tsize mismatch for lm_head.weight: copying a param"
        ),
    ),
    LoggedFailure("semantic-error", _trace("AssertionError: sequence length 4097 exceeds 4096")),
    LoggedFailure("semantic-error", _trace("ZeroDivisionError: division by zero")),
    LoggedFailure(
        "semantic-error", "CUDA out of memory at batch 64, trying 32\n" + _trace("IndexError: list index out of range")
    ),
    LoggedFailure(
        "missing-file", _trace("FileNotFoundError: [Errno 2] No such file or directory: '/data/imagenet/train'")
    ),
    LoggedFailure(
        "missing-file", "python3: can't open file '/home/ada/trian.py': [Errno 2] No such file or directory\n", 2
    ),
    LoggedFailure(
        "missing-file",
        _trace("botocore.errorfactory.NoSuchKey: An error occurred (NoSuchKey) when calling the GetObject operation"),
    ),
    LoggedFailure(
        "permission-error", _trace("PermissionError: [Errno 13] Permission denied: '/data/private/labels.csv'")
    ),
    LoggedFailure(
        "permission-error", _trace("huggingface_hub.errors.GatedRepoError: 403 Client Error. Cannot access gated repo")
    ),
    LoggedFailure(
        "incorrect-inputs", _trace("PIL.UnidentifiedImageError: cannot identify image file '/data/a/0012.jpg'")
    ),
    LoggedFailure(
        "incorrect-inputs",
        _trace("UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
    ),
    LoggedFailure("incorrect-inputs", _trace("pyarrow.lib.ArrowInvalid: Parquet magic bytes not found in footer.")),
    LoggedFailure(
        "incorrect-inputs",
        _trace("pandas.errors.ParserError: Error tokenizing data. C error: Expected 5 fields in line 12, saw 6"),
    ),
    LoggedFailure(
        "model-diverged",
        "step 812 loss 11.2\nstep 813 loss nan\nFloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding.\n",
    ),
    LoggedFailure("model-diverged", "step 4000: loss is nan, stopping training\n"),
    LoggedFailure(
        "invalid-memory-access",
        _trace(
            "RuntimeError: CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously reported at some other API call"
        ),
    ),
    LoggedFailure(
        "invalid-memory-access",
        "../aten/src/ATen/native/cuda/Indexing.cu:1290: indexSelectLargeIndex: block: [4,0,0], thread: [0,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\n"
        + _trace("RuntimeError: CUDA error: device-side assert triggered"),
    ),
    LoggedFailure(
        "core-dump", "Fatal Python error: Segmentation fault\n\nThread 0x00007f (most recent call first):\n", None, 11
    ),
    LoggedFailure("core-dump", "", None, 11),
    LoggedFailure("core-dump", "double free or corruption (!prev)\n", None, 6),
    LoggedFailure("core-dump", "./run.sh: line 4:  882 Segmentation fault      (core dumped) ./trainer\n", 139),
    LoggedFailure("traceback", _trace("mylib.errors.PipelineBroken: stage 3 gave up")),
    LoggedFailure("traceback", _trace("RuntimeError: something odd")),
    # files and checkpoints
    LoggedFailure(
        "checkpoint-error",
        _trace("RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory"),
    ),
    LoggedFailure("checkpoint-error", _trace("OSError: [Errno 116] Stale file handle: '/nfs/ckpt/step_4000.pt'")),
    LoggedFailure(
        "checkpoint-error",
        "WARN hdfs.DFSClient: DFSOutputStream ResponseProcessor exception for block\norg.apache.hadoop.ipc.RemoteException(java.io.IOException): NameNode is in safe mode.\n",
    ),
    LoggedFailure(
        "checkpoint-error",
        _trace("safetensors_rust.SafetensorError: Error while deserializing header: InvalidHeaderDeserialization"),
    ),
    LoggedFailure("checkpoint-error", _trace("OSError: [Errno 5] Input/output error")),
    LoggedFailure("disk-full", _trace("OSError: [Errno 28] No space left on device")),
    LoggedFailure("out-of-scratch", _trace("OSError: [Errno 122] Disk quota exceeded")),
    # the GPU and the node
    LoggedFailure("ecc-error", _trace("RuntimeError: CUDA error: uncorrectable ECC error encountered") + _TORCHRUN),
    LoggedFailure(
        "gpu-lost",
        "[88123.4] NVRM: Xid (PCI:0000:0f:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
        + _trace("RuntimeError: CUDA error: unspecified launch failure"),
    ),
    LoggedFailure(
        "gpu-lost",
        "Unable to determine the device handle for GPU 0000:81:00.0: GPU is lost.  Reboot the system to recover this GPU\n",
    ),
    LoggedFailure(
        "nvlink-error",
        "[1.2] NVRM: Xid (PCI:0000:3b:00): 74, pid=991, NVLink: fatal error detected on link 2(0x10000)\n"
        + _trace("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251, unhandled cuda error"),
    ),
    LoggedFailure(
        "mps",
        _trace("RuntimeError: CUDA error: the remote procedural call between the MPS server and the MPS client failed"),
    ),
    LoggedFailure(
        "device",
        "[9.9] NVRM: Xid (PCI:0000:1a:00): 119, pid=77, Timeout after 6s of waiting for RPC response from GPU0 GSP!\n",
    ),
    LoggedFailure(
        "invalid-memory-access",
        "[9.9] NVRM: Xid (PCI:0000:1a:00): 31, pid=77, name=python, Ch 00000010, MMU Fault\n"
        + _trace("RuntimeError: CUDA error: unspecified launch failure"),
    ),
    LoggedFailure("cuda-init-failed", _trace("RuntimeError: No CUDA GPUs are available")),
    LoggedFailure(
        "cuda-init-failed",
        _trace(
            "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment, e.g. changing env variable CUDA_VISIBLE_DEVICES after program start."
        ),
    ),
    LoggedFailure("cuda-init-failed", "Failed to initialize NVML: Driver/library version mismatch\n"),
    LoggedFailure("cuda-failure", _trace("RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED")),
    LoggedFailure("thermal", "mce: [Hardware Error]: Machine check events logged\n", None, 7),
    # communication
    LoggedFailure(
        "nccl-watchdog",
        "[rank3]:[E1116 10:00:01 ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8812, OpType=ALLREDUCE) ran for 600031 milliseconds before timing out.\nterminate called after throwing an instance of 'c10::DistBackendError'\n",
        None,
        6,
    ),
    LoggedFailure(
        "communication",
        _trace(
            "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1333, remote process exited or there was a network error\nncclRemoteError: A call failed possibly due to a network error"
        ),
    ),
    LoggedFailure(
        "communication",
        _trace(
            "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to (10.0.0.4, 29500)."
        ),
    ),
    LoggedFailure(
        "communication",
        _trace(
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.7]:31111"
        ),
    ),
    LoggedFailure("communication", _trace("OSError: [Errno 98] Address already in use")),
    LoggedFailure(
        "communication",
        "node7:881:991 [2] misc/ibvwrap.cc NCCL WARN NET/IB : Got completion from peer 10.0.0.2 with status=12 opcode=0 len=0 vendor err 129 IBV_WC_RETRY_EXC_ERR\n"
        + _trace("RuntimeError: NCCL communicator was aborted on rank 2."),
    ),
    LoggedFailure("mpi-error", "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD\nwith errorcode 1.\n"),
    LoggedFailure(
        "mpi-runtime-failure",
        "ORTE has lost communication with a remote daemon.\n  HNP daemon   : [[1,0],0] on node n1\n",
    ),
    LoggedFailure(
        "mpi-runtime-failure",
        "slurmstepd: error: *** JOB 8812 ON n7 CANCELLED AT 2026-11-01T03:00:00 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***\n",
        None,
        15,
    ),
    LoggedFailure(
        "communication",
        _trace("requests.exceptions.ConnectionError: HTTPSConnectionPool(host='hub', port=443): Max retries exceeded"),
    ),
    LoggedFailure(
        "mpi-error",
        "[n1:123] *** An error occurred in MPI_Allreduce\n[n1:123] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort)\n",
    ),
    LoggedFailure(
        "gpu-out-of-memory",
        _trace("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"),
    ),
    LoggedFailure(
        "cuda-init-failed",
        _trace(
            "RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False."
        ),
    ),
    LoggedFailure(
        "missing-file",
        _trace("OSError: lab/none is not a local folder and is not a valid model identifier listed on the hub"),
    ),
    # little is known
    LoggedFailure(
        "preempted",
        "slurmstepd: error: *** JOB 8813 ON n7 CANCELLED AT 2026-11-01T03:00:00 DUE TO PREEMPTION ***\n",
        None,
        15,
    ),
    LoggedFailure("killed", "step 100\nstep 101\n", None, 9),
    LoggedFailure("killed", "", 137),
)
