package app

// stock caches how many more of each offer would fit.
type stock struct{}
