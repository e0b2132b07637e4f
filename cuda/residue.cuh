// The pattern that one program writes and another looks for.
#pragma once

#include "common.cuh"

constexpr unsigned long long kPattern = 0x74726e6368a55adeULL;
