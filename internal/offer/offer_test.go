package offer_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/gpu"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/offer"
	"github.com/tranche-cloud/tranche/internal/placement"
)

func mig(t *testing.T) offer.Shape {
	t.Helper()
	s, err := offer.NewShape(gpu.MIG, offer.Shape{Model: "H200-141", Profile: "1g.18gb", Memory: 16384, SMs: 16, VCPU: 4, RAM: 32768})
	require.NoError(t, err)
	return s
}

func TestContentHashTellsEveryFieldApart(t *testing.T) {
	base := offer.SKU{Shape: mig(t), Isolation: offer.Isolation{GPU: gpu.Partitioned, Host: offer.SharedKernel}}
	seen := map[string]string{string(base.ContentHash()): "base"}
	for name, change := range map[string]func(*offer.SKU){
		"model":   func(k *offer.SKU) { k.Shape.Model = "H200" },
		"mode":    func(k *offer.SKU) { k.Shape.Mode = gpu.WholeMode() },
		"profile": func(k *offer.SKU) { k.Shape.Profile = "1g.18gb+me" },
		"count":   func(k *offer.SKU) { k.Shape.Count = 2 },
		"memory":  func(k *offer.SKU) { k.Shape.Memory++ },
		"sms":     func(k *offer.SKU) { k.Shape.SMs++ },
		"percent": func(k *offer.SKU) { k.Shape.SMPercent++ },
		"vcpu":    func(k *offer.SKU) { k.Shape.VCPU++ },
		"ram":     func(k *offer.SKU) { k.Shape.RAM++ },
		"gpu":     func(k *offer.SKU) { k.Isolation.GPU = gpu.Shared },
		"host":    func(k *offer.SKU) { k.Isolation.Host = offer.SingleOrgHost },
	} {
		k := base
		change(&k)
		require.NotContains(t, seen, string(k.ContentHash()), name)
		seen[string(k.ContentHash())] = name
	}
	named := base
	named.ID, named.Code = id.New[id.Claim](), "another name"
	require.Equal(t, base.ContentHash(), named.ContentHash(), "names are not content")
}

func TestShapeAsksPlacementForItsMode(t *testing.T) {
	s := mig(t)
	r := s.Request(id.Org{})
	require.Equal(t, placement.Request{
		Model: "H200-141", Count: 1, VCPU: 4, RAM: 32768,
		Want: gpu.Want{Mode: gpu.MIGMode(), Profile: "1g.18gb", MinMemory: 16384, MinSMs: 16},
	}, r)
	turns, err := offer.NewShape(gpu.TimeSlice, offer.Shape{Profile: "2"})
	require.NoError(t, err)
	require.Empty(t, turns.Request(id.Org{}).Want.Profile)
	require.Equal(t, offer.Isolation{GPU: gpu.Shared, Host: offer.SharedKernel}, turns.IsolationIn(placement.SharedHosts))
	_, err = offer.NewShape(gpu.Whole, offer.Shape{Profile: "x"})
	require.Equal(t, "request.invalid", fault.CodeOf(err))
}
