package app

type flights struct{}

func newFlights() *flights { return &flights{} }
