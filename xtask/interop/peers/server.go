//go:build ignore

// The back end in Go's net/http: HTTP/1.1, h2c with prior knowledge, and both by ALPN with TLS. It
// is also what nginx, Apache, lighttpd and Caddy have behind them for what is no file.
//
// server CLEAR-PORT TLS-PORT H2C-PORT FOLDER (server.pem, server.key, files/file)
package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"
)

const blockSize = 251 * 256

var block = func() []byte {
	bytes := make([]byte, blockSize)
	for index := range bytes {
		bytes[index] = byte(index % 251)
	}
	return bytes
}()

// writePattern writes bytes that repeat only after 251 of them, so that a shifted copy differs.
func writePattern(w io.Writer, size int64) error {
	for size > 0 {
		piece := block[:min(size, blockSize)]
		if _, err := w.Write(piece); err != nil {
			return err
		}
		size -= int64(len(piece))
	}
	return nil
}

func digest(r io.Reader) (string, error) {
	hash := sha256.New()
	length, err := io.Copy(hash, r)
	return fmt.Sprintf("%d %x", length, hash.Sum(nil)), err
}

func text(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	io.WriteString(w, body)
}

func hello(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("ETag", `"v1"`)
	if r.Header.Get("If-None-Match") == `"v1"` {
		w.WriteHeader(304)
		return
	}
	text(w, 200, "hello\n")
}

func octets(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/octet-stream")
}

func inspect(w http.ResponseWriter, r *http.Request) {
	lines := []string{"method: " + r.Method, "path: " + r.RequestURI, "host: " + r.Host}
	for name, values := range r.Header {
		lines = append(lines, strings.ToLower(name)+": "+strings.Join(values, ", "))
	}
	sort.Strings(lines)
	text(w, 200, strings.Join(lines, "\n")+"\n")
}

func echo(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	control.EnableFullDuplex() // HTTP/2 is so by itself, and says that it cannot.
	octets(w)
	w.WriteHeader(200)
	control.Flush()
	buffer := make([]byte, 64*1024)
	for {
		count, err := r.Body.Read(buffer)
		if _, failed := w.Write(buffer[:count]); failed != nil || err != nil {
			if err != nil && err != io.EOF || failed != nil {
				log.Printf("echo: %v %v", err, failed)
				panic(http.ErrAbortHandler)
			}
			return
		}
		control.Flush()
	}
}

// whole replies only when it has the request, as servers expect that cannot do both at once.
func whole(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		log.Printf("whole: %v", err)
		panic(http.ErrAbortHandler)
	}
	octets(w)
	w.Write(body)
}

func sink(w http.ResponseWriter, r *http.Request) {
	found, err := digest(r.Body)
	if err != nil {
		log.Printf("sink: %v", err)
	}
	text(w, 200, found+"\n")
}

func cookies(w http.ResponseWriter, r *http.Request) {
	for _, cookie := range []string{"a=1; Path=/", "b=2; Expires=Wed, 21 Oct 2037 07:28:00 GMT", "c=3; HttpOnly"} {
		w.Header().Add("Set-Cookie", cookie)
	}
	found, _ := digest(strings.NewReader(strings.Join(r.Header.Values("Cookie"), "; ")))
	text(w, 200, found+"\n")
}

func trailers(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Trailer", "X-Checksum")
	io.WriteString(w, "data\n")
	w.Header().Set("X-Checksum", "abc")
}

func uploadTrailers(w http.ResponseWriter, r *http.Request) {
	found, _ := digest(r.Body)
	trailer := r.Trailer.Get("X-Checksum")
	if trailer == "" {
		trailer = "none"
	}
	text(w, 200, found+" "+trailer+"\n")
}

func routes(folder string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", hello)
	mux.HandleFunc("/nothing", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) })
	mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) {
		file, err := os.Open(filepath.Join(folder, "files/file"))
		if err != nil {
			text(w, 500, err.Error())
			return
		}
		defer file.Close()
		w.Header().Set("ETag", `"file"`)
		octets(w)
		info, _ := file.Stat()
		http.ServeContent(w, r, "file", info.ModTime(), file)
	})
	mux.HandleFunc("/text", func(w http.ResponseWriter, _ *http.Request) {
		text(w, 200, strings.Repeat("compress me ", 400))
	})
	mux.HandleFunc("/chunked", func(w http.ResponseWriter, _ *http.Request) {
		octets(w)
		writePattern(w, 300000)
	})
	mux.HandleFunc("/bytes/{size}", func(w http.ResponseWriter, r *http.Request) {
		size, _ := strconv.ParseInt(r.PathValue("size"), 10, 64)
		octets(w)
		w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
		writePattern(w, size)
	})
	mux.HandleFunc("/echo", echo)
	mux.HandleFunc("/whole", whole)
	mux.HandleFunc("/sink", sink)
	mux.HandleFunc("/inspect", inspect)
	mux.HandleFunc("/cookies", cookies)
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/hello", 302) })
	mux.HandleFunc("/trailers", trailers)
	mux.HandleFunc("/trailers-up", uploadTrailers)
	// Replies from the head, as middleware does.
	mux.HandleFunc("/refuse/401", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		text(w, 401, "no\n")
	})
	mux.HandleFunc("/refuse/413", func(w http.ResponseWriter, _ *http.Request) { text(w, 413, "no\n") })
	return mux
}

func main() {
	folder := os.Args[4]
	handler := routes(folder)
	server := func(port string, clear, h2c bool) *http.Server {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(!h2c)
		protocols.SetHTTP2(!clear)
		protocols.SetUnencryptedHTTP2(h2c)
		return &http.Server{
			Addr: "127.0.0.1:" + port, Handler: handler, Protocols: protocols, IdleTimeout: time.Minute,
		}
	}
	go func() { log.Fatal(server(os.Args[1], true, false).ListenAndServe()) }()
	go func() { log.Fatal(server(os.Args[3], true, true).ListenAndServe()) }()
	certificate, key := filepath.Join(folder, "server.pem"), filepath.Join(folder, "server.key")
	log.Fatal(server(os.Args[2], false, false).ListenAndServeTLS(certificate, key))
}
