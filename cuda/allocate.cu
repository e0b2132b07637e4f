// allocate asks for device memory and prints what it got.
#include "common.cuh"

constexpr char kHelp[] = "allocate MIB... [--hold SECONDS]";

int main(int argc, char** argv) {
  if (argc < 2) usage(kHelp);
  double hold = 0;
  begin();
  bool refused = false;
  for (int i = 1; i < argc; i++) {
    if (std::strcmp(argv[i], "--hold") == 0) {
      if (++i == argc) usage(kHelp);
      hold = number(argv[i], 0, 86400, kHelp) * 1000.0;
      continue;
    }
    const size_t mib = number(argv[i], 1, 1 << 20, kHelp);
    void* memory = nullptr;
    const cudaError_t code = cudaMalloc(&memory, mib * kMiB);
    if (code == cudaSuccess) check("cudaMemset", cudaMemset(memory, 1, mib * kMiB));
    cudaGetLastError();  // a refusal is an answer, not a fault
    refused = refused || code != cudaSuccess;
    line("allocate", "\"mib\":%zu,\"ok\":%s,\"code\":\"%s\"", mib, code == cudaSuccess ? "true" : "false",
         cudaGetErrorName(code));
  }
  check("cudaDeviceSynchronize", cudaDeviceSynchronize());
  rest(hold);
  line("end", "\"refused\":%s", refused ? "true" : "false");
  return 0;
}
