// Package acceptance_test drives the provider with a real Terraform binary against a
// fake API in the same process; nothing outside this machine is contacted.
package acceptance_test

import (
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/stretchr/testify/require"

	"github.com/tranche-cloud/tranche/terraform/internal/provider"
)

func TestMain(m *testing.M) {
	if os.Getenv("TF_ACC_TERRAFORM_PATH") == "" {
		if _, err := exec.LookPath("terraform"); err != nil {
			os.Stderr.WriteString("no Terraform binary: put terraform on PATH or set TF_ACC_TERRAFORM_PATH to OpenTofu's; see `make test`\n")
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

var providers = map[string]func() (tfprotov6.ProviderServer, error){
	"tranche": providerserver.NewProtocol6WithError(provider.New("test")()),
}

const trainer = `
resource "tranche_instance" "trainer" {
  name   = "trainer"
  offer  = "h200-mig-1g-16gib"
  image  = "ghcr.io/acme/trainer:1"
  env    = { TOKEN = "s3cret" }
  labels = { team = "ml" }
}`

func emptyPlan() resource.ConfigPlanChecks {
	return resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}}
}

func TestCreateSecondPlanEmptyImportDestroy(t *testing.T) {
	s := serve(t)
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: providers,
		Steps: []resource.TestStep{
			{Config: trainer, Check: resource.ComposeAggregateTestCheckFunc(
				resource.TestCheckResourceAttr("tranche_instance.trainer", "status", "running"),
				resource.TestCheckResourceAttr("tranche_instance.trainer", "project", "proj_1"),
				resource.TestCheckResourceAttr("tranche_instance.trainer", "isolation_gpu", "partitioned"),
				resource.TestCheckResourceAttr("tranche_instance.trainer", "price_per_hour", "0.49"),
				resource.TestCheckResourceAttr("tranche_instance.trainer", "simulated", "true"),
				resource.TestCheckResourceAttrSet("tranche_instance.trainer", "client_token"),
			)},
			{Config: trainer, ConfigPlanChecks: emptyPlan()},
			{ResourceName: "tranche_instance.trainer", ImportState: true, ImportStateVerify: true,
				ImportStateVerifyIgnore: []string{"env"}},
		},
		CheckDestroy: func(*terraform.State) error { require.Zero(t, s.live()); return nil },
	})
	require.Equal(t, 1, s.creates)
}

func TestKeysChangeInPlaceAndPortsAreShown(t *testing.T) {
	s := serve(t)
	with := func(key string) string {
		return `
resource "tranche_instance" "notebook" {
  offer    = "h200-mig-1g-16gib"
  image    = "ghcr.io/acme/notebook:1"
  ssh_keys = ["` + key + `\n"]
  ports    = [{ container_port = 8888 }, { container_port = 53, protocol = "udp" }]
}`
	}
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: providers,
		Steps: []resource.TestStep{
			{Config: with("ssh-ed25519 AAAA me"), Check: resource.ComposeAggregateTestCheckFunc(
				resource.TestCheckResourceAttr("tranche_instance.notebook", "endpoints.0.kind", "ssh"),
				resource.TestCheckResourceAttr("tranche_instance.notebook", "endpoints.0.port", "2222"),
				resource.TestCheckResourceAttr("tranche_instance.notebook", "endpoints.2.container_port", "53"),
				resource.TestCheckResourceAttr("tranche_instance.notebook", "endpoints.2.protocol", "udp"),
			)},
			{Config: with("ssh-ed25519 AAAA me"), ConfigPlanChecks: emptyPlan()},
			{Config: with("ssh-ed25519 BBBB me"), ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectResourceAction("tranche_instance.notebook", plancheck.ResourceActionUpdate),
			}}},
			{Config: with("ssh-ed25519 BBBB me"), ConfigPlanChecks: emptyPlan()},
		},
	})
	require.Equal(t, 1, s.creates)
	require.Equal(t, 1, s.patches)
}

func TestARefusedStartReachesTheUserAndLeavesNoOrphan(t *testing.T) {
	s := serve(t)
	s.fate = func(n int) (string, string, string) {
		if n == 1 {
			return "failed", "capacity.none", "No H200-141 has room for 1g.18gb; mps:4x25 on A100-80 would start now."
		}
		return "running", "", ""
	}
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: providers,
		Steps: []resource.TestStep{
			{Config: trainer, ExpectError: regexp.MustCompile(`mps:4x25 on A100-80\s+would start\s+now`)},
			// The failed one was in the state, tainted: it is replaced, not forgotten.
			{Config: trainer, Check: resource.TestCheckResourceAttr("tranche_instance.trainer", "status", "running")},
		},
	})
	require.Equal(t, 2, s.creates)
	require.Zero(t, s.live())
}

func TestATimeoutKeepsTheInstanceInTheState(t *testing.T) {
	s := serve(t)
	s.fate = func(int) (string, string, string) { return "placing", "", "" }
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: providers,
		Steps: []resource.TestStep{{
			Config: `
resource "tranche_instance" "slow" {
  offer    = "h200-mig-1g-16gib"
  image    = "ghcr.io/acme/trainer:1"
  timeouts = { create = "300ms" }
}`,
			ExpectError: regexp.MustCompile(`is still being worked on\s+and is in\s+the state`),
		}},
	})
	require.Equal(t, 1, s.creates)
	require.Zero(t, s.live(), "destroy found it in the state")
}

func TestAnInstanceDeletedElsewhereIsMadeAgain(t *testing.T) {
	s := serve(t)
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: providers,
		Steps: []resource.TestStep{
			{Config: trainer},
			{PreConfig: s.removeAll, Config: trainer, ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
				plancheck.ExpectResourceAction("tranche_instance.trainer", plancheck.ResourceActionCreate),
			}}},
		},
	})
	require.Equal(t, 2, s.creates)
}

func TestARefusedReadNeverRemovesFromTheState(t *testing.T) {
	s := serve(t)
	refusing := false
	s.refuse = func(r *http.Request) (int, string) {
		if refusing && r.Method == http.MethodGet {
			return 403, "auth.forbidden"
		}
		return 0, ""
	}
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: providers,
		Steps: []resource.TestStep{
			{Config: trainer},
			{PreConfig: func() { refusing = true }, Config: trainer, ExpectError: regexp.MustCompile(`auth.forbidden`)},
			{PreConfig: func() { refusing = false }, Config: trainer, ConfigPlanChecks: emptyPlan()},
		},
	})
	require.Equal(t, 1, s.creates)
}

func TestAClientTokenAdoptsWhatACutOffApplyCreated(t *testing.T) {
	s := serve(t)
	config := `
resource "tranche_instance" "trainer" {
  offer        = "h200-mig-1g-16gib"
  image        = "ghcr.io/acme/trainer:1"
  client_token = "run-7"
}`
	lost, err := http.Post(s.URL+"/v1/projects/-/instances", "application/json",
		strings.NewReader(`{"offer":"h200-mig-1g-16gib","image":"ghcr.io/acme/trainer:1","client_token":"run-7"}`))
	require.NoError(t, err)
	require.NoError(t, lost.Body.Close())
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: providers,
		Steps:                    []resource.TestStep{{Config: config}, {Config: config, ConfigPlanChecks: emptyPlan()}},
	})
	require.Equal(t, 1, s.creates)
}

func TestAClientTokenDoesNotAdoptATombstone(t *testing.T) {
	s := serve(t)
	body := `{"offer":"h200-mig-1g-16gib","image":"ghcr.io/acme/trainer:1","client_token":"run-7"}`
	made, err := http.Post(s.URL+"/v1/projects/-/instances", "application/json", strings.NewReader(body))
	require.NoError(t, err)
	require.NoError(t, made.Body.Close())
	s.instances["inst_00000000000000000000000001"]["status"] = "deleted"
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: providers,
		Steps: []resource.TestStep{{
			Config: `
resource "tranche_instance" "trainer" {
  offer        = "h200-mig-1g-16gib"
  image        = "ghcr.io/acme/trainer:1"
  client_token = "run-7"
}`,
			ExpectError: regexp.MustCompile(`already created with that\s+client_token`),
		}},
	})
}

func TestABadTimeoutIsAPlanError(t *testing.T) {
	s := serve(t)
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: providers,
		Steps: []resource.TestStep{{
			Config: `
resource "tranche_instance" "x" {
  offer    = "o"
  image    = "i"
  timeouts = { create = "soon" }
}`,
			ExpectError: regexp.MustCompile(`Not a duration`),
		}},
	})
	require.Zero(t, s.creates)
}

func TestOffersAreFiltered(t *testing.T) {
	serve(t)
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: providers,
		Steps: []resource.TestStep{{
			Config: `data "tranche_offers" "mig" { mode = "mig" }`,
			Check: resource.ComposeAggregateTestCheckFunc(
				resource.TestCheckResourceAttr("data.tranche_offers.mig", "offers.#", "1"),
				resource.TestCheckResourceAttr("data.tranche_offers.mig", "offers.0.id", "h200-mig-1g-16gib"),
				resource.TestCheckResourceAttr("data.tranche_offers.mig", "offers.0.price_per_hour", "0.49"),
			),
		}},
	})
}
