// Package acceptance holds no code: its tests drive the whole provider with a real
// Terraform binary against a fake API.
package acceptance
