// Command terraform-provider-tranche is the Terraform provider of Tranche. It talks
// to the public API through the Go SDK and knows nothing else of the product.
package main

import (
	"context"
	"flag"
	"log"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"

	"github.com/tranche-cloud/tranche/terraform/internal/provider"
)

// version is set by the release build.
var version = "dev"

func main() {
	debug := flag.Bool("debug", false, "serve for a debugger")
	flag.Parse()
	err := providerserver.Serve(context.Background(), provider.New(version), providerserver.ServeOpts{
		Address: "registry.terraform.io/tranche-cloud/tranche",
		Debug:   *debug,
	})
	if err != nil {
		log.Fatal(err)
	}
}
