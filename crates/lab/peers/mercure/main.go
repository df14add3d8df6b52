// A Mercure hub of dunglas/mercure, as its own program sets it up, with its history in Bolt or with
// none, over HTTP/1.1 in clear text.
package main

import (
	"context"
	"flag"
	"log/slog"
	"net/http"
	"os"
	"runtime/debug"

	"github.com/dunglas/mercure"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:3000", "where to listen")
	bolt := flag.String("bolt", "", "the file of the history; none when empty")
	key := flag.String("key", "", "the key of the publisher's token, HS256")
	version := flag.Bool("version", false, "say the version")
	flag.Parse()
	if *version {
		say()
		return
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	list := mercure.NewSubscriberList(mercure.DefaultSubscriberListCacheSize)
	var transport mercure.Transport = mercure.NewLocalTransport(list)
	if *bolt != "" {
		durable, err := mercure.NewBoltTransport(list, logger, *bolt, "updates", 0, 0.3)
		check(err)
		transport = durable
	}
	hub, err := mercure.NewHub(context.Background(), mercure.WithTransport(transport),
		mercure.WithLogger(logger), mercure.WithAnonymous(),
		mercure.WithPublisherJWT([]byte(*key), "HS256"),
		mercure.WithSubscriberJWT([]byte(*key), "HS256"))
	check(err)
	http.Handle("/.well-known/mercure", hub)
	check(http.ListenAndServe(*listen, nil))
}

func say() {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/dunglas/mercure" {
			println("mercure " + module.Version)
		}
	}
}

func check(err error) {
	if err != nil {
		println("error: " + err.Error())
		os.Exit(1)
	}
}
