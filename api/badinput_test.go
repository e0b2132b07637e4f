package api_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/internal/id"
)

// Every bad input has its problem code, nothing reaches a handler, and nothing of
// the value that was sent comes back.
func TestBadInput(t *testing.T) {
	const marker = "zzqq"
	with := func(fields string) string { return `{"offer":"h100-whole","image":"a/b:1",` + fields + `}` }
	create := func(body string) ask {
		return ask{as: tenant, method: "POST", path: "/v1/projects/{mine}/instances", body: body}
	}
	header := func(name, value string) ask {
		a := create(goodBody)
		a.header = map[string]string{name: value}
		return a
	}
	without := func(name string) ask {
		a := create(goodBody)
		a.drop = name
		return a
	}
	instance := id.New[id.Instance]().String()
	stop := func(tag string) ask {
		return ask{
			as: tenant, method: "POST", path: "/v1/projects/{mine}/instances/" + instance + "/actions/stop",
			header: map[string]string{"If-Match": tag},
		}
	}
	org := func(body string) ask {
		return ask{as: operator, method: "POST", path: "/v1/admin/organizations", body: body}
	}
	get := func(path string) ask { return ask{as: tenant, method: "GET", path: path} }

	cases := map[string]struct {
		ask     ask
		status  int
		code    string
		pointer string
	}{
		"no JSON":                 {create(`{"offer":`), 400, "request.malformed", ""},
		"not even close":          {create(marker), 400, "request.malformed", ""},
		"two values":              {create(goodBody + goodBody), 400, "request.malformed", ""},
		"value and rubbish":       {create(goodBody + "]"), 400, "request.malformed", ""},
		"empty body":              {create(""), 400, "request.malformed", ""},
		"no UTF-8":                {create(with("\"name\":\"\xff\xfe\"")), 400, "request.malformed", ""},
		"half a pair":             {create(with(`"name":"a\ud800b"`)), 400, "request.malformed", ""},
		"pair the wrong way":      {create(with(`"name":"\udc00\ud800"`)), 400, "request.malformed", ""},
		"half a pair at the end":  {create(with(`"name":"\ud83d"`)), 400, "request.malformed", ""},
		"half a pair and a key":   {create(with(`"\ud83d\n":1`)), 400, "request.malformed", ""},
		"whole pair, escaped u":   {create(with(`"name":"\ud83d\ude00\\ud800","no":1`)), 400, "request.unknown_field", "/no"},
		"member twice":            {create(with(`"offer":"x"`)), 400, "request.malformed", ""},
		"too deep":                {create(with(`"labels":` + strings.Repeat("[", 40) + strings.Repeat("]", 40))), 400, "request.malformed", ""},
		"text/plain":              {header("Content-Type", "text/plain"), 400, "request.malformed", ""},
		"no content type":         {without("Content-Type"), 400, "request.malformed", ""},
		"other charset":           {header("Content-Type", "application/json; charset=latin1"), 400, "request.malformed", ""},
		"compressed":              {header("Content-Encoding", "gzip"), 400, "request.malformed", ""},
		"body is a list":          {create(`[1]`), 400, "request.invalid", ""},
		"body is null":            {create(`null`), 400, "request.invalid", ""},
		"unknown field":           {create(with(`"quote":"x"`)), 400, "request.unknown_field", "/quote"},
		"field not built yet":     {create(with(`"priority_class":"spot"`)), 400, "request.unknown_field", "/priority_class"},
		"missing field":           {create(`{"offer":"h100-whole"}`), 400, "request.invalid", "/image"},
		"wrong type":              {create(with(`"name":12`)), 400, "request.invalid", "/name"},
		"null for text":           {create(with(`"name":null`)), 400, "request.invalid", "/name"},
		"control character":       {create(with(`"name":"a\u0007` + marker + `"`)), 400, "request.invalid", "/name"},
		"NUL":                     {create(with(`"name":"a\u0000b"`)), 400, "request.invalid", "/name"},
		"bidi override":           {create(with(`"name":"a\u202eb"`)), 400, "request.invalid", "/name"},
		"NUL in a command":        {create(with(`"command":["a\u0000"]`)), 400, "request.invalid", "/command/0"},
		"NUL in a value":          {create(with(`"env":[{"name":"A","value":"\u0000"}]`)), 400, "request.invalid", "/env/0/value"},
		"bad variable":            {create(with(`"env":[{"name":"1=A","value":""}]`)), 400, "request.invalid", "/env/0/name"},
		"name of spaces":          {create(with(`"name":"  "`)), 400, "request.invalid", "/name"},
		"name too long":           {create(with(`"name":"` + strings.Repeat("n", 64) + `"`)), 400, "request.invalid", "/name"},
		"bad label":               {create(with(`"labels":{"a b":"c"}`)), 400, "request.invalid", "/labels"},
		"too many labels":         {create(with(`"labels":{` + manyLabels(65) + `}`)), 400, "request.invalid", "/labels"},
		"bad offer":               {create(`{"offer":"../` + marker + `","image":"a"}`), 400, "request.invalid", "/offer"},
		"other recovery":          {create(with(`"recovery":"always"`)), 400, "request.invalid", "/recovery"},
		"negative number":         {org(`{"name":"A","currency":"USD","quota":{"instances":-1,"gpus":0}}`), 400, "request.invalid", "/quota/instances"},
		"huge number":             {org(`{"name":"A","currency":"USD","quota":{"instances":99999999999999999999,"gpus":0}}`), 400, "request.invalid", "/quota/instances"},
		"fraction":                {org(`{"name":"A","currency":"USD","quota":{"instances":1.5,"gpus":0}}`), 400, "request.invalid", "/quota/instances"},
		"costly exponent":         {org(`{"name":"A","currency":"USD","quota":{"instances":1e999999999,"gpus":0}}`), 400, "request.invalid", ""},
		"integer as 1.0":          {org(`{"name":"A","currency":"USD","quota":{"instances":1.0,"gpus":0}}`), 400, "request.invalid", ""},
		"text for number":         {org(`{"name":"A","currency":"USD","quota":{"instances":"1","gpus":0}}`), 400, "request.invalid", "/quota/instances"},
		"bad currency":            {org(`{"name":"A","currency":"usd"}`), 400, "request.invalid", "/currency"},
		"no idempotency key":      {without("Idempotency-Key"), 400, "idempotency.missing", ""},
		"empty idempotency key":   {header("Idempotency-Key", ""), 400, "request.invalid", "Idempotency-Key"},
		"long idempotency key":    {header("Idempotency-Key", strings.Repeat("k", 256)), 400, "request.invalid", "Idempotency-Key"},
		"space in the key":        {header("Idempotency-Key", "a b"), 400, "request.invalid", "Idempotency-Key"},
		"weak ETag":               {stop(`W/"g1"`), 400, "request.invalid", "If-Match"},
		"foreign ETag":            {stop(`"abc"`), 400, "request.invalid", "If-Match"},
		"star":                    {stop(`*`), 400, "request.invalid", "If-Match"},
		"empty ETag":              {stop(``), 400, "request.invalid", "If-Match"},
		"negative ETag":           {stop(`"g-1"`), 400, "request.invalid", "If-Match"},
		"unknown parameter":       {get("/v1/offers?colour=red"), 400, "request.unknown_field", "colour"},
		"repeated parameter":      {get("/v1/offers?mode=mig&mode=mps"), 400, "request.invalid", "mode"},
		"parameter not listed":    {get("/v1/offers?mode=" + marker), 400, "request.invalid", "mode"},
		"NUL in a parameter":      {get("/v1/offers?region=%00"), 400, "request.invalid", "region"},
		"query unreadable":        {get("/v1/offers?a=%zz"), 400, "request.invalid", ""},
		"page size 0":             {get("/v1/offers?page_size=0"), 400, "request.invalid", "page_size"},
		"page size 201":           {get("/v1/offers?page_size=201"), 400, "request.invalid", "page_size"},
		"page size huge":          {get("/v1/offers?page_size=99999999999999999999"), 400, "request.invalid", "page_size"},
		"page size text":          {get("/v1/offers?page_size=ten"), 400, "request.invalid", "page_size"},
		"page size hexadecimal":   {get("/v1/offers?page_size=0x10"), 400, "request.invalid", "page_size"},
		"wait without unit":       {get("/v1/operations/" + id.New[id.Operation]().String() + "?wait=30"), 400, "request.invalid", "wait"},
		"usage from no time":      {get("/v1/projects/{mine}/usage?from=yesterday"), 400, "request.invalid", "from"},
		"usage group unknown":     {get("/v1/projects/{mine}/usage?group_by=instance,colour"), 400, "request.invalid", "group_by"},
		"period of 13 months":     {get("/v1/organization/invoice-preview?period=2026-13"), 400, "request.invalid", "period"},
		"body where none belongs": {ask{as: tenant, method: "POST", path: "/v1/projects/{mine}/instances/" + instance + "/actions/stop", body: "{}"}, 400, "request.invalid", ""},

		"no credential":         {ask{method: "GET", path: "/v1/offers"}, 401, "auth.missing", ""},
		"unknown credential":    {ask{as: marker, method: "GET", path: "/v1/offers"}, 401, "auth.invalid", ""},
		"other scheme":          {header("Authorization", "Basic dTpw"), 401, "auth.invalid", ""},
		"credential over 8 KiB": {header("Authorization", "Bearer "+strings.Repeat("x", 9000)), 401, "auth.invalid", ""},
		"scope missing":         {ask{as: reader, method: "POST", path: "/v1/projects/{mine}/instances", body: goodBody}, 403, "auth.forbidden", ""},
		"tenant as operator":    {ask{as: tenant, method: "GET", path: "/v1/admin/hosts"}, 403, "auth.forbidden", ""},

		"foreign project":            {ask{as: tenant, method: "POST", path: "/v1/projects/{foreign}/instances", body: goodBody}, 404, "resource.not_found", ""},
		"foreign project, bad body":  {ask{as: tenant, method: "POST", path: "/v1/projects/{foreign}/instances", body: "{"}, 404, "resource.not_found", ""},
		"no project id":              {get("/v1/projects/%00/instances"), 404, "resource.not_found", ""},
		"no only project":            {get("/v1/projects/-/instances"), 404, "resource.not_found", ""},
		"unknown instance, bad body": {ask{as: tenant, method: "POST", path: "/v1/projects/{mine}/instances/x/actions/stop", body: "{}"}, 404, "resource.not_found", ""},
		"unknown path":               {get("/v1/nothing/" + marker), 404, "resource.not_found", ""},
		"trailing slash":             {get("/v1/offers/"), 404, "resource.not_found", ""},
		"dot segments":               {get("/v1/projects/../offers"), 404, "resource.not_found", ""},
		"wrong method":               {ask{as: tenant, method: "DELETE", path: "/v1/offers"}, 405, "request.invalid", ""},

		"header of 20 KiB": {header("X-Filler", strings.Repeat("x", 20<<10)), 431, "request.header_too_large", ""},
		"body over 1 MiB":  {create(`{"offer":"` + strings.Repeat("x", 1<<20) + `"}`), 413, "request.too_large", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			w := b.do(t, c.ask)
			p := refused(t, w)
			require.Equal(t, c.code, p.Code, w.Body.String())
			require.Equal(t, c.status, w.Code)
			require.NotContains(t, w.Body.String(), marker)
			require.Empty(t, b.calls, "no handler may run")
			if c.pointer != "" {
				require.NotNil(t, p.Errors, w.Body.String())
				require.Equal(t, c.pointer, (*p.Errors)[0].Pointer)
			}
		})
	}
}

func manyLabels(n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf(`"l%d":""`, i)
	}
	return strings.Join(out, ",")
}

func TestBodyOfUnknownLengthIsLimitedToo(t *testing.T) {
	b := newBench(t)
	body := io.NopCloser(strings.NewReader(strings.Repeat(" ", 1<<20) + goodBody))
	r := httptest.NewRequest("POST", "/v1/projects/"+b.project.String()+"/instances", body)
	require.Equal(t, int64(-1), r.ContentLength)
	for name, value := range map[string]string{
		"Authorization": "Bearer " + tenant, "Idempotency-Key": "k-1", "Content-Type": "application/json",
	} {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	b.ServeHTTP(w, r)
	require.Equal(t, "request.too_large", refused(t, w).Code)
}

func TestWrongMethodSaysWhichAreRight(t *testing.T) {
	w := newBench(t).do(t, ask{as: tenant, method: http.MethodPatch, path: "/v1/projects/{mine}/instances"})
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	require.Equal(t, "GET, POST", w.Header().Get("Allow"))
}
