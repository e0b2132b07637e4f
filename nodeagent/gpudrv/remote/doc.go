// Package remote puts a GPU driver into a process of its own, the gpu-worker, and uses
// it from another. Work is the worker's side; Supervisor is the other: a gpudrv.Driver
// that starts workers and gives up on those that hang.
//
// A driver call can hang for ever in the kernel, with a process that cannot be killed.
// The worker is therefore replaceable: a GPU that does not answer in time is taken for
// hung, its worker is abandoned (never waited for; what it does for other GPUs it may
// finish), and the next one is started without
// that GPU. Every call about a hung GPU is then answered Hung at once, without touching
// the driver, until Readmit. No lock outlives a worker, and a hung GPU costs at most one
// stuck process. A worker that ends is replaced when the next call needs one.
//
// Reads that a dying worker did not answer are asked again; changes are answered Broken
// with ErrLost as cause: whether they were made is not known, and they are safe to
// repeat. It decides nothing about health and restarts nothing but workers.
package remote
