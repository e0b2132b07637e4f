// pattern fills device memory with words that nobody else writes.
#include "residue.cuh"

constexpr char kHelp[] = "pattern MIB [--hold SECONDS]";

__global__ void fill(unsigned long long* memory, size_t words) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words; i += step) memory[i] = kPattern;
}

int main(int argc, char** argv) {
  if (argc != 2 && !(argc == 4 && std::strcmp(argv[2], "--hold") == 0)) usage(kHelp);
  const size_t bytes = number(argv[1], 1, 1 << 20, kHelp) * kMiB;
  const double hold = argc == 4 ? number(argv[3], 0, 86400, kHelp) * 1000.0 : 0;
  begin();
  unsigned long long* memory = nullptr;
  check("cudaMalloc", cudaMalloc(&memory, bytes));
  fill<<<1024, 256>>>(memory, bytes / sizeof(*memory));
  check("fill", cudaDeviceSynchronize());
  line("pattern", "\"words\":%zu", bytes / sizeof(*memory));
  rest(hold);
  line("end");
  return 0;
}
