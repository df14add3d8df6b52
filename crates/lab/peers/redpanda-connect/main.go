// Redpanda Connect's engine with the components that a mapping flow over HTTP needs: what the
// `redpanda-connect` binary runs for such a flow.
package main

import (
	"context"
	"net/http"

	_ "github.com/redpanda-data/benthos/v4/public/components/io"
	_ "github.com/redpanda-data/benthos/v4/public/components/pure"
	"github.com/redpanda-data/benthos/v4/public/service"
)

func main() {
	// Its HTTP client uses Go's transport, which keeps two connections to a host. All systems keep
	// their connections here, and no setting of its own says so.
	if transport, ok := http.DefaultTransport.(*http.Transport); ok {
		transport.MaxIdleConns = 0
		transport.MaxIdleConnsPerHost = 2048
	}
	service.RunCLI(context.Background())
}
