// spin computes for a share of the time and prints how fast.
#include "common.cuh"

constexpr char kHelp[] = "spin [--hide] [--twice] SECONDS [DUTY_PERCENT] [REPORT_EVERY_SECONDS]";
constexpr double kPeriodMs = 100;

// One iteration is some 5 ms on a whole H200, in blocks so many and so short that
// the last wave matters little, whatever share of the SMs runs them.
constexpr int kBlocks = 132 * 256, kThreads = 256, kRounds = 10000;

__global__ void burn(float* out, int rounds) {
  float a = threadIdx.x * 1e-3f, b = blockIdx.x * 1e-6f;
#pragma unroll 16
  for (int i = 0; i < rounds; i++) {
    a = fmaf(a, 0.999f, b);
    b = fmaf(b, 1.001f, a);
  }
  if (a + b == 12345.678f) *out = a;  // never, but the compiler cannot know
}

// options takes what a hostile program would do off the arguments: hide from the
// MPS daemon, or compute in two processes.
void options(int& argc, char**& argv) {
  for (; argc > 1 && std::strncmp(argv[1], "--", 2) == 0; argc--, argv++) {
    if (std::strcmp(argv[1], "--hide") == 0) {
      unsetenv("CUDA_MPS_PIPE_DIRECTORY");
    } else if (std::strcmp(argv[1], "--twice") == 0) {
      if (fork() < 0) std::exit(1);
    } else {
      usage(kHelp);
    }
  }
}

int main(int argc, char** argv) {
  options(argc, argv);
  if (argc < 2 || argc > 4) usage(kHelp);
  const double seconds = number(argv[1], 1, 86400, kHelp);
  const double duty = argc > 2 ? number(argv[2], 1, 100, kHelp) / 100.0 : 1.0;
  const double every = argc > 3 ? number(argv[3], 1, 3600, kHelp) * 1000.0 : 1000.0;
  begin();
  float* out = nullptr;
  check("cudaMalloc", cudaMalloc(&out, sizeof(float)));
  burn<<<kBlocks, kThreads>>>(out, 1);
  check("first kernel", cudaDeviceSynchronize());
  line("first");

  const double from = millis();
  double busy = 0, reported = from;
  long count = 0, last = 0;
  for (double now = from; now - from < seconds * 1000; now = millis()) {
    const double period = now;
    do {
      burn<<<kBlocks, kThreads>>>(out, kRounds);
      check("kernel", cudaDeviceSynchronize());
      count++;
    } while (duty < 1 && millis() - period < kPeriodMs * duty);
    now = millis();
    busy += now - period;
    if (duty < 1) rest(busy / duty - (now - from));
    if (now - reported >= every) {
      line("rate", "\"iterations\":%ld,\"per_second\":%.3f", count - last, (count - last) * 1000 / (now - reported));
      last = count;
      reported = now;
    }
  }
  const double took = millis() - from;
  line("end", "\"iterations\":%ld,\"per_second\":%.3f,\"busy\":%.4f", count, count * 1000 / took, busy / took);
  return 0;
}
