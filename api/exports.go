package api

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	"github.com/tranche-cloud/tranche/billing/focus"
	"github.com/tranche-cloud/tranche/openapi/wire"
)

// ExportFocus answers GET /v1/organization/exports/focus.
func (h *Handlers) ExportFocus(ctx context.Context, req ExportFocusRequestObject) (ExportFocusResponseObject, error) {
	c, err := payer(ctx)
	if err != nil {
		return nil, err
	}
	export, err := h.app.FocusExport(ctx, c, req.Params.Period)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	d := &document{media: "text/csv; charset=utf-8", name: "focus-" + req.Params.Period + ".csv"}
	if value(req.Params.Format) == wire.ExportFormatParquet {
		d.media, d.name = "application/vnd.apache.parquet", "focus-"+req.Params.Period+".parquet"
		err = focus.WriteParquet(&out, export.Rows())
	} else {
		err = focus.WriteCSV(&out, export.Rows())
	}
	if err != nil {
		return nil, fmt.Errorf("writing the costs of %s: %w", req.Params.Period, err)
	}
	d.body = out.Bytes()
	return d, nil
}

func (d *document) VisitExportFocusResponse(w http.ResponseWriter) error { return d.write(w) }
