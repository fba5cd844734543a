"""Ends of outputs in forms that users reported of their trainings, collected after the table of causes was written.

Names, paths and numbers are invented; the forms are those of public reports about PyTorch, TensorFlow, JAX, NCCL,
Horovod, MPI, containers and clusters. What the table first made of them is in docs/explain/failures.md.
"""

from __future__ import annotations

from health.log_corpus import LoggedFailure as F  # a table is easier to read with a short name

_AT = 'Traceback (most recent call last):\n  File "/srv/run/main.py", line 41, in <module>\n    main()\n'
_C10 = "terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  "
_FRAMES = (
    "Exception raised from checkTimeout at ProcessGroupNCCL.cpp:567 (most recent call first):\n"
    "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x99 (0x7f in libc10.so)\n"
)
_MPI = (
    "Primary job  terminated normally, but 1 process returned\na non-zero exit code. "
    "Per user-direction, the job has been aborted.\n"
)
_HVD = "Horovod has been shut down. This was caused by an exception on one of the ranks or an attempt to allreduce\n"

HELD_OUT: tuple[F, ...] = (
    # hardware
    F(
        "ecc-error",
        "RuntimeError: cuda runtime error (39) : uncorrectable ECC error encountered at THCAllocator.cpp:265\n",
    ),
    F(
        "ecc-error",
        "F stream_executor/lib/statusor.cc:34] failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_ECC_UNCORRECTABLE\n",
        None,
        6,
    ),
    F(
        "ecc-error",
        "[E ProcessGroupNCCL.cpp:916] [Rank 1] NCCL watchdog thread terminated with exception: CUDA error: uncorrectable ECC error encountered\n"
        + _FRAMES,
        None,
        6,
    ),
    F("gpu-lost", "nvidia-smi: Unable to determine the device handle for GPU0000:81:00.0: Unknown Error\n"),
    F("gpu-lost", "pynvml.nvml.NVMLError_GpuIsLost: GPU is lost\n"),
    F(
        "gpu-lost",
        "kernel: NVRM: GPU at PCI:0000:17:00: GPU-5aa\nkernel: NVRM: Xid (PCI:0000:17:00): 79, pid=2201, GPU has fallen off the bus.\n",
    ),
    F("nvlink-error", "kernel: NVRM: Xid (PCI:0000:0f:00): 74, pid=91, NVLink: fatal error detected on link 4\n"),
    F(
        "device",
        "kernel: NVRM: Xid (PCI:0000:3b:00): 119, pid=77, Timeout waiting for RPC from GSP! Expected function 76\n",
    ),
    F("ecc-error", "kernel: NVRM: Xid (PCI:0000:3b:00): 95, pid=5, Uncontained: LTC TAG (0x2,0x0)\n"),
    F("ecc-error", "kernel: NVRM: Xid (PCI:0000:b1:00): 64, pid='<unknown>', Row Remapper: Failed to remap a row\n"),
    F("thermal", "mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 6: be00000000800400\n", None, 9),
    # memory
    F(
        "gpu-out-of-memory",
        _AT
        + "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.1 GiB\n",
    ),
    F(
        "gpu-out-of-memory",
        _AT
        + "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with shape[256,56,56,64] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc\n",
    ),
    F(
        "gpu-out-of-memory",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 12884901888 bytes.\n",
    ),
    F(
        "gpu-out-of-memory",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`\n",
    ),
    F(
        "out-of-memory",
        "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 34359738368 bytes. Error code 12 (Cannot allocate memory)\n",
    ),
    F(
        "out-of-memory",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=8812.0. Some of the step tasks have been OOM Killed.\n",
        None,
        9,
    ),
    F(
        "out-of-memory",
        "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 119. GiB for an array with shape (4000000, 4000)\n",
    ),
    F("out-of-memory", _AT + "RuntimeError: DataLoader worker (pid 2117) is killed by signal: Killed.\n"),
    F(
        "shared-memory",
        _AT
        + "RuntimeError: DataLoader worker (pid 46794) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.\n",
    ),
    F(
        "shared-memory",
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n",
    ),
    F(
        "shared-memory",
        "node08:27106:27302 [0] include/shm.h:48 NCCL WARN Error while creating shared memory segment nccl-shm-recv-b7 (size 4460544)\nRuntimeError: NCCL error in: ProcessGroupNCCL.cpp:290, unhandled system error\n",
    ),
    F(
        "shared-memory",
        _AT + "RuntimeError: unable to open shared memory object </torch_2210_118> in read-write mode\n",
    ),
    # disks and checkpoints
    F(
        "disk-full",
        _AT + '  File "torch/serialization.py", line 604, in _save\nOSError: [Errno 28] No space left on device\n',
    ),
    F("disk-full", "RuntimeError: [enforce fail at inline_container.cc:595] . unexpected pos 1856 vs 1750\n"),
    F(
        "out-of-scratch",
        "mmengine - INFO - Saving checkpoint at 14 epochs\n" + _AT + "OSError: [Errno 122] Disk quota exceeded\n",
    ),
    F("checkpoint-error", _AT + "RuntimeError: write(): fd 29 failed with Input/output error\n"),
    F("checkpoint-error", _AT + "RuntimeError: File out/checkpoints/checkpoint_0.pt cannot be opened.\n"),
    F(
        "checkpoint-error",
        _AT + "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory\n",
    ),
    F(
        "checkpoint-error",
        _AT + "RuntimeError: unexpected EOF, expected 812 more bytes. The file might be corrupted.\n",
    ),
    F("checkpoint-error", _AT + "RuntimeError: Invalid magic number; corrupt file?\n"),
    F("checkpoint-error", _AT + "RuntimeError: storage has wrong size: expected 0 got 64\n"),
    F("checkpoint-error", _AT + "OSError: [Errno 116] Stale file handle: '/nfs/ckpt/latest'\n"),
    F(
        "checkpoint-error",
        _AT + "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer\n",
    ),
    # programs
    F(
        "semantic-error",
        _AT
        + 'RuntimeError: Error(s) in loading state_dict for ResNet:\n\tMissing key(s) in state_dict: "fc.weight".\n',
    ),
    F("semantic-error", _AT + "RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x512 and 1024x10)\n"),
    F(
        "semantic-error",
        _AT + "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.\n",
    ),
    F("semantic-error", _AT + "AttributeError: 'NoneType' object has no attribute 'shape'\n"),
    F(
        "semantic-error",
        _AT
        + "RuntimeError: The size of tensor a (197) must match the size of tensor b (577) at non-singleton dimension 1\n",
    ),
    F("semantic-error", _AT + "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn\n"),
    F("import-error", _AT + "ImportError: libcudnn.so.8: cannot open shared object file: No such file or directory\n"),
    F(
        "import-error",
        "python: error while loading shared libraries: libmpi.so.40: cannot open shared object file\n",
        127,
    ),
    F("import-error", _AT + "ModuleNotFoundError: No module named 'flash_attn_2_cuda'\n"),
    F("import-error", _AT + "ImportError: /opt/lib/fused.so: undefined symbol: _ZN3c104cuda9SetDeviceEi\n"),
    F(
        "syntax-error",
        "usage: train.py [-h] [--lr LR]\ntrain.py: error: unrecognized arguments: --learning_rate 0.1\n",
        2,
    ),
    F(
        "syntax-error",
        "/opt/entrypoint.sh: line 67: exec: --: invalid option\nexec: usage: exec [-cl] [-a name] [command]\n",
        2,
    ),
    F("syntax-error", _AT + "hydra.errors.ConfigCompositionException: Could not override 'trainer.gpus'.\n"),
    F("missing-file", "bash: train.py: No such file or directory\n", 127),
    F("missing-file", "/bin/sh: 1: torchrun: not found\n", 127),
    F("missing-file", _AT + "FileNotFoundError: [Errno 2] No such file or directory: '/data/imagenet/train'\n"),
    F(
        "missing-file",
        _AT + "OSError: meta-llama/Foo is not a local folder and is not a valid model identifier listed on the hub\n",
    ),
    F("permission-error", _AT + "PermissionError: [Errno 13] Permission denied: '/scratch/shared/out.pt'\n"),
    F(
        "permission-error",
        _AT + "huggingface_hub.errors.GatedRepoError: 403 Client Error. Access to model foo is restricted\n",
    ),
    F(
        "incorrect-inputs",
        _AT + "PIL.UnidentifiedImageError: cannot identify image file <_io.BytesIO object at 0x7f>\n",
    ),
    F("incorrect-inputs", _AT + "OSError: image file is truncated (7 bytes not processed)\n"),
    F(
        "incorrect-inputs",
        _AT + "pandas.errors.ParserError: Error tokenizing data. C error: Expected 3 fields in line 9, saw 4\n",
    ),
    F("incorrect-inputs", _AT + "ValueError: num_samples should be a positive integer value, but got num_samples=0\n"),
    # divergence
    F("model-diverged", "Loss is nan, stopping training\n"),
    F(
        "model-diverged",
        _AT
        + "tensorflow.python.training.basic_session_run_hooks.NanLossDuringTrainingError: NaN loss during training.\n",
    ),
    F("model-diverged", _AT + "ValueError: Network outputs is NAN! Stop Training\n"),
    F(
        "model-diverged",
        _AT + "FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding.\n",
    ),
    F("model-diverged", _AT + "RuntimeError: Function 'LogSoftmaxBackward0' returned nan values in its 0th output.\n"),
    # kernels and drivers
    F(
        "invalid-memory-access",
        "INTERNAL: Failed to launch CUDA kernel: fusion_1560: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered\n",
    ),
    F(
        "invalid-memory-access",
        "../aten/src/ATen/native/cuda/Indexing.cu:1146: indexSelectLargeIndex: block: [12,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\nRuntimeError: CUDA error: device-side assert triggered\n",
    ),
    F("cuda-init-failed", "[E] [TRT] CUDA initialization failure with error 35. Please check your CUDA installation\n"),
    F(
        "cuda-init-failed",
        "ERROR: The NVIDIA Driver is present, but CUDA failed to initialize. GPU functionality will not be available.\n",
    ),
    F("cuda-init-failed", "Failed to initialize NVML: GPU access blocked by the operating system\n"),
    F("cuda-init-failed", "Failed to initialize NVML: Driver/library version mismatch\n"),
    F("cuda-init-failed", _AT + "RuntimeError: No CUDA GPUs are available\n"),
    F("cuda-init-failed", "cudaGetDeviceCount returned 38\n-> no CUDA-capable device is detected\nResult = FAIL\n"),
    F(
        "cuda-init-failed",
        'docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].\n',
        125,
    ),
    F("cuda-failure", "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: cuSolver internal error\n"),
    F("cuda-failure", _AT + "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED\n"),
    F(
        "cuda-failure",
        "F xla/service/gpu/gemm_fusion_autotuner.cc:1099] INTERNAL: ptxas exited with non-zero error code 139\n",
        None,
        6,
    ),
    # communication and launchers
    F(
        "nccl-watchdog",
        _C10
        + "[PG 1 Rank 6] Process group watchdog thread terminated with exception: [Rank 6] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=199, OpType=_REDUCE_SCATTER_BASE, Timeout(ms)=600000) ran for 882722 milliseconds before timing out.\n"
        + _FRAMES,
        None,
        6,
    ),
    F(
        "nccl-watchdog",
        "[E ProcessGroupNCCL.cpp:325] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels\n"
        + _AT
        + "RuntimeError: NCCL communicator was aborted on rank 0.\n",
    ),
    F(
        "nccl-watchdog",
        "[rank3]:[F1118 ProcessGroupNCCL.cpp:1250] [PG ID 0 Rank 3] Heartbeat monitor timed out! Process will be terminated after dumping debug info.\n",
        None,
        6,
    ),
    F(
        "communication",
        _AT
        + "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:911, unhandled system error, NCCL version 2.7.8\nncclSystemError: System call (socket, malloc, munmap, etc) failed.\n",
    ),
    F(
        "communication",
        "42692:140:140 [0] include/socket.h:333 NCCL WARN Call to bind failed : Address already in use\n",
    ),
    F(
        "communication",
        _AT
        + "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268, ncclRemoteError: A call failed possibly due to a network error\n",
    ),
    F("communication", "W op_kernel.cc:1318] OP_REQUIRES failed at mpi_ops.cc:422 : Aborted: " + _HVD),
    F(
        "communication",
        _AT
        + "torch.distributed.DistNetworkError: The client socket has timed out after 60s while trying to connect to (n1, 29500).\n",
    ),
    F(
        "communication",
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.7]:43112\n",
    ),
    F(
        "communication",
        "grpc: UNAVAILABLE: failed to connect to all addresses; last error: ipv4:10.2.0.3:8471: Connection refused\n",
    ),
    F(
        "mpi-runtime-failure",
        _MPI + "mpirun noticed that process rank 7 with PID 0 on node h3 exited on signal 9 (Killed).\n",
        137,
    ),
    F(
        "mpi-runtime-failure",
        _MPI
        + "mpirun detected that one or more processes exited with non-zero status, thus causing\nthe job to be terminated.\n",
    ),
    F(
        "mpi-runtime-failure",
        "srun: error: Node failure on h12\nslurmstepd: error: *** STEP 99.0 ON h11 CANCELLED DUE TO NODE FAILURE ***\n",
    ),
    F(
        "mpi-error",
        "[h1:2201] *** An error occurred in MPI_Allreduce\n[h1:2201] *** MPI_ERR_TRUNCATE: message truncated\n",
        15,
    ),
    F(
        "core-dump",
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n",
        None,
        11,
    ),
    F("core-dump", "malloc(): memory corruption\n", None, 6),
    F(
        "preempted",
        "slurmstepd: error: *** JOB 771 ON h4 CANCELLED AT 2026-03-01T10:00:00 DUE TO PREEMPTION ***\n",
        None,
        15,
    ),
    F("traceback", _AT + "RuntimeError: something of our own went wrong\n"),
)
