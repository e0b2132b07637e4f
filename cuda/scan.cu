// scan looks for what an earlier program left in device memory.
#include "residue.cuh"

constexpr char kHelp[] = "scan MIB";

__global__ void look(const unsigned long long* memory, size_t words, unsigned long long* found) {
  unsigned long long matches = 0, others = 0;
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words; i += step) {
    matches += memory[i] == kPattern;
    others += memory[i] != 0;
  }
  atomicAdd(&found[0], matches);
  atomicAdd(&found[1], others);
}

int main(int argc, char** argv) {
  if (argc != 2) usage(kHelp);
  const size_t bytes = number(argv[1], 1, 1 << 20, kHelp) * kMiB;
  begin();
  unsigned long long *memory = nullptr, *found = nullptr, result[2] = {};
  check("cudaMalloc", cudaMalloc(&memory, bytes));  // on purpose not cleared
  check("cudaMalloc", cudaMalloc(&found, sizeof(result)));
  check("cudaMemset", cudaMemset(found, 0, sizeof(result)));
  look<<<1024, 256>>>(memory, bytes / sizeof(*memory), found);
  check("scan", cudaDeviceSynchronize());
  check("cudaMemcpy", cudaMemcpy(result, found, sizeof(result), cudaMemcpyDeviceToHost));
  line("scan", "\"words\":%zu,\"pattern\":%llu,\"not_zero\":%llu", bytes / sizeof(*memory), result[0], result[1]);
  line("end");
  return 0;
}
