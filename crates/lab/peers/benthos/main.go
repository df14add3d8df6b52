// Benthos, as Redpanda Connect was called before, with the components that flows between HTTP and
// RabbitMQ need.
package main

import (
	"context"
	"net/http"
	"os"

	_ "github.com/benthosdev/benthos/v4/public/components/amqp09"
	_ "github.com/benthosdev/benthos/v4/public/components/io"
	_ "github.com/benthosdev/benthos/v4/public/components/pure"
	"github.com/benthosdev/benthos/v4/public/service"
)

func main() {
	// Its HTTP client uses Go's transport, which keeps two connections to a host. All systems keep
	// their connections here, and no setting of its own says so.
	if transport, ok := http.DefaultTransport.(*http.Transport); ok {
		transport.MaxIdleConns = 0
		transport.MaxIdleConnsPerHost = 4096
	}
	// As Redpanda Connect is called.
	if len(os.Args) == 3 && os.Args[1] == "run" {
		os.Args[1] = "--config"
	}
	service.RunCLI(context.Background())
}
