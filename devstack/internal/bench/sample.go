package bench

import (
	"math"
	"slices"
	"time"
)

// sample is a set of durations; what it tells is in milliseconds.
type sample []time.Duration

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// percentile of the sample, 0 to 100.
func (s sample) percentile(p float64) float64 {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	return milliseconds(sorted[min(len(sorted)-1, int(float64(len(sorted))*p/100))])
}

// deviation is the standard deviation.
func (s sample) deviation() float64 {
	if len(s) < 2 {
		return 0
	}
	var mean, squares float64
	for _, d := range s {
		mean += milliseconds(d) / float64(len(s))
	}
	for _, d := range s {
		squares += math.Pow(milliseconds(d)-mean, 2)
	}
	return math.Sqrt(squares / float64(len(s)-1))
}
