package app

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tranche-cloud/tranche/billing/rating"
	"github.com/tranche-cloud/tranche/internal/fault"
	"github.com/tranche-cloud/tranche/internal/id"
	"github.com/tranche-cloud/tranche/internal/store"
)

// groupers is what usage can be grouped by, beside labels: the values that were true when
// it was recorded.
var groupers = map[string]func(rating.Usage) string{
	"project":   func(u rating.Usage) string { return u.Project.String() },
	"instance":  usedBy,
	"name":      func(u rating.Usage) string { return u.SubjectName },
	"sku":       func(u rating.Usage) string { return u.SKU.Code },
	"meter":     func(u rating.Usage) string { return string(u.Meter) },
	"region":    func(u rating.Usage) string { return u.Region },
	"isolation": func(u rating.Usage) string { return u.SKU.IsolationGPU + "/" + u.SKU.IsolationHost },
	"pricing":   func(u rating.Usage) string { return string(u.Pricing) },
}

// labelGroup begins a grouping by a label: label:team. Usage without it has the value "".
const labelGroup = "label:"

// maxGroups bounds the groupings of one query, maxLabelKey a label's name.
const (
	maxGroups   = 8
	maxLabelKey = 63
)

// groupSeparator joins the values of a group; no value contains it.
const groupSeparator = "\x1f"

func usedBy(u rating.Usage) string {
	if u.Subject.Kind == "reservation" { // charged for, whoever used it
		return id.Reservation(u.Subject.ID).String()
	}
	return id.Instance(u.Subject.ID).String()
}

// checkGroups refuses what usage cannot be grouped by.
func checkGroups(by []string) error {
	refuse := func(text string) error {
		return fault.New(fault.Invalid, "request.invalid", text).
			Suggest("Group by project, instance, name, sku, meter, region, isolation, pricing or label:<key>.").
			With(fault.Field{Pointer: "group_by", Code: "enum", Detail: "project, instance, name, sku, meter, region, isolation, pricing or label:<key>"})
	}
	for i, g := range by {
		key, isLabel := strings.CutPrefix(g, labelGroup)
		switch {
		case isLabel && (key == "" || len(key) > maxLabelKey), !isLabel && groupers[g] == nil:
			return refuse(fmt.Sprintf("Usage cannot be grouped by %.80q.", g))
		case slices.Contains(by[:i], g):
			return refuse(fmt.Sprintf("Usage cannot be grouped by %.80q twice.", g))
		}
	}
	if len(by) > maxGroups {
		return refuse(fmt.Sprintf("Usage cannot be grouped by more than %d things at once.", maxGroups))
	}
	return nil
}

// groupOf joins the values of a segment's group.
func groupOf(u rating.Usage, by []string, labels map[store.SegmentKey]map[string]string) string {
	values := make([]string, 0, len(by))
	for _, g := range by {
		value := ""
		if key, isLabel := strings.CutPrefix(g, labelGroup); isLabel {
			value = strings.ReplaceAll(labels[store.KeyOf(u)][key], groupSeparator, " ")
		} else {
			value = groupers[g](u)
		}
		values = append(values, value)
	}
	return strings.Join(values, groupSeparator)
}
