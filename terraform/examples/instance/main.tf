terraform {
  required_providers {
    tranche = { source = "tranche-cloud/tranche" }
  }
}

# Reads TRANCHE_API_URL and TRANCHE_API_KEY.
provider "tranche" {}

data "tranche_offers" "mig" {
  mode = "mig"
}

resource "tranche_instance" "trainer" {
  name   = "trainer"
  offer  = data.tranche_offers.mig.offers[0].id
  image  = "ghcr.io/acme/trainer:1"
  labels = { team = "ml" }

  lifecycle {
    ignore_changes = [offer] # the cheapest offer may change; a running instance stays
  }
}

output "price_per_hour" {
  value = "${tranche_instance.trainer.price_per_hour} ${tranche_instance.trainer.currency}"
}
