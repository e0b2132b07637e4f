// What the test programs have in common: time, arguments and lines of JSON.
#pragma once

#include <cuda_runtime.h>
#include <unistd.h>

#include <chrono>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

constexpr int kCudaFailed = 3;
constexpr int kBadUsage = 2;
constexpr size_t kMiB = size_t{1} << 20;

using Clock = std::chrono::steady_clock;
inline const Clock::time_point kStarted = Clock::now();

inline double millis() {
  return std::chrono::duration<double, std::milli>(Clock::now() - kStarted).count();
}

// line prints one event; the format is the inside of a JSON object. ms counts from
// the program's start, at is the machine's clock in ms since 1970, tag is the
// environment's TAG and tells programs apart whose lines lie in one folder.
inline void line(const char* event, const char* format = "", ...) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const long long at = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  const char* tag = std::getenv("TAG");
  std::printf("{\"event\":\"%s\",\"tag\":\"%s\",\"pid\":%d,\"at\":%lld,\"ms\":%.1f", event, tag ? tag : "",
              getpid(), at, millis());
  if (*format != '\0') {
    std::printf(",");
    va_list args;
    va_start(args, format);
    std::vprintf(format, args);
    va_end(args);
  }
  std::printf("}\n");
  std::fflush(stdout);
}

[[noreturn]] inline void failed(const char* what, cudaError_t code) {
  line("error", "\"call\":\"%s\",\"code\":\"%s\"", what, cudaGetErrorName(code));
  std::_Exit(kCudaFailed);
}

inline void check(const char* what, cudaError_t code) {
  if (code != cudaSuccess) failed(what, code);
}

[[noreturn]] inline void usage(const char* text) {
  std::fprintf(stderr, "usage: %s\n", text);
  std::exit(kBadUsage);
}

// number reads a whole argument as a number in a range.
inline long number(const char* text, long least, long most, const char* help) {
  char* end = nullptr;
  long n = std::strtol(text, &end, 10);
  if (end == text || *end != '\0' || n < least || n > most) usage(help);
  return n;
}

inline void rest(double ms) {
  if (ms > 0) std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms));
}

// begin makes the context and prints what the process sees of the GPU.
inline void begin() {
  check("cudaFree", cudaFree(nullptr));
  int sms = 0;
  size_t free_bytes = 0, total = 0;
  check("cudaDeviceGetAttribute", cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
  check("cudaMemGetInfo", cudaMemGetInfo(&free_bytes, &total));
  line("start", "\"sms\":%d,\"free_mib\":%zu,\"total_mib\":%zu", sms, free_bytes / kMiB, total / kMiB);
}
