package instance

import (
	"context"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// defaultTimeout is how long create and delete wait unless the user says otherwise.
const defaultTimeout = 10 * time.Minute

var durations = []validator.String{duration{}}

// duration refuses text that is not a positive duration, at plan time.
type duration struct{}

func (duration) Description(context.Context) string { return "a positive duration such as 10m" }

func (d duration) MarkdownDescription(ctx context.Context) string { return d.Description(ctx) }

func (duration) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	if d, err := time.ParseDuration(req.ConfigValue.ValueString()); err != nil || d <= 0 {
		resp.Diagnostics.AddAttributeError(req.Path, "Not a duration", "Write a positive duration such as 90s or 10m.")
	}
}

// timeout reads one entry of the timeouts attribute.
func timeout(o types.Object, which string) time.Duration {
	if v, ok := o.Attributes()[which].(types.String); ok {
		if d, err := time.ParseDuration(v.ValueString()); err == nil {
			return d
		}
	}
	return defaultTimeout
}
