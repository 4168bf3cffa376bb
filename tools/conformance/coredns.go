// Command coredns is CoreDNS with the plugins that the DNS server of a cluster needs.
//
// Upstream's own command has all plugins, most of which serve other purposes and take minutes to
// compile. There is no forward plugin: it does not resolve names outside of the cluster.
package main

import (
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"

	"github.com/coredns/coredns/coremain"
)

func main() {
	coremain.Run()
}
