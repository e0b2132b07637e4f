package trace

import "time"

// Shape is the kind of slice that a share of a GPU is mapped to.
type Shape int

// Shapes by size of the share.
const (
	Quarter Shape = iota // a quarter of a GPU, mps:4x25
	ThreeSevenths
	Half // timeslice:2
	Whole
)

// Shapes lists all.
var Shapes = []Shape{Quarter, ThreeSevenths, Half, Whole}

// shapeOf maps a share, in thousandths, to the smallest shape that holds it.
func shapeOf(milli int) Shape {
	switch {
	case milli <= 250:
		return Quarter
	case milli <= 428:
		return ThreeSevenths
	case milli <= 500:
		return Half
	default:
		return Whole
	}
}

// Arrival is one create to play.
type Arrival struct {
	Task         string
	At           time.Duration // since the first arrival, in the time of the trace
	Life         time.Duration // from running to delete, in the time of the trace
	Shape        Shape
	Organization int // 0 to one less than their number
}

// Plan maps a window of tasks to creates, spread over the organizations by their
// index. Tasks of several GPUs are left out and counted.
func Plan(window []Task, organizations int) (arrivals []Arrival, skipped int) {
	for i, t := range window {
		if t.GPUs != 1 {
			skipped++
			continue
		}
		arrivals = append(arrivals, Arrival{
			Task: t.Name, At: time.Duration(t.Created-window[0].Created) * time.Second,
			Life: t.Life(), Shape: shapeOf(t.Milli), Organization: i % organizations,
		})
	}
	return arrivals, skipped
}
