// Marks what CUDA kernels call too; nothing to a C++ compiler.
#ifndef TFXCLASS_CORE_HOST_DEVICE_H_
#define TFXCLASS_CORE_HOST_DEVICE_H_

#ifdef __CUDACC__
#define TFXCLASS_HD __host__ __device__
#else
#define TFXCLASS_HD
#endif

#endif  // TFXCLASS_CORE_HOST_DEVICE_H_
