// fault writes to an address that it does not own.
#include "common.cuh"

constexpr char kHelp[] = "fault [DELAY_MS]";

__global__ void hit(int* address) { *address = 1; }

int main(int argc, char** argv) {
  if (argc > 2) usage(kHelp);
  const double delay = argc == 2 ? number(argv[1], 0, 3600000, kHelp) : 0;
  begin();
  rest(delay);
  line("fault");
  hit<<<1, 1>>>(reinterpret_cast<int*>(uintptr_t{0xdead0000}));
  check("kernel", cudaDeviceSynchronize());
  return 0;
}
