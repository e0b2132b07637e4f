package app

type credentials struct{}

func newCredentials() *credentials { return &credentials{} }
