//go:build ignore

// The client of Go's net/http: h1, h1s, h2 and h2c. Each line of its input is a request, as words
// NAME=VALUE between tabs; each line of its output what came of it, as a JSON object of texts.
//
// client AUTHORITY
package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
)

type outcome = map[string]string

type words struct {
	values  map[string]string
	headers []string
}

func parse(line string) words {
	read := words{values: map[string]string{}}
	for _, word := range strings.Split(line, "\t") {
		name, value, _ := strings.Cut(word, "=")
		if name == "header" {
			read.headers = append(read.headers, value)
		}
		read.values[name] = value
	}
	return read
}

func (w words) has(name string) bool { return w.values[name] != "" }

func (w words) number(name string) int64 {
	number, _ := strconv.ParseInt(w.values[name], 10, 64)
	return number
}

var block = func() []byte {
	bytes := make([]byte, 251*256)
	for index := range bytes {
		bytes[index] = byte(index % 251)
	}
	return bytes
}()

// pattern is bytes that repeat only after 251 of them, so that a shifted copy differs.
type pattern struct {
	size, at int64
}

func (p *pattern) Read(into []byte) (int, error) {
	if p.at == p.size {
		return 0, io.EOF
	}
	offset := p.at % 251
	count := int64(copy(into, block[offset:]))
	count = min(count, p.size-p.at)
	p.at += count
	return int(count), nil
}

func client(mode string, authorities *x509.CertPool) *http.Client {
	mode = strings.TrimPrefix(mode, "go-")
	protocols := new(http.Protocols)
	protocols.SetHTTP1(mode == "h1" || mode == "h1s")
	protocols.SetHTTP2(mode == "h2")
	protocols.SetUnencryptedHTTP2(mode == "h2c")
	return &http.Client{
		Transport: &http.Transport{
			Protocols: protocols, TLSClientConfig: &tls.Config{RootCAs: authorities},
			ExpectContinueTimeout: time.Minute, MaxConnsPerHost: 16, MaxIdleConnsPerHost: 16,
			ReadBufferSize: 64 * 1024, WriteBufferSize: 64 * 1024, DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func request(w words, url string, interim *sync.Map) (*http.Request, error) {
	var body io.Reader
	if w.number("body") > 0 {
		body = &pattern{size: w.number("body")}
	}
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
		interim.Store(code, true)
		return nil
	}}
	made, err := http.NewRequestWithContext(
		httptrace.WithClientTrace(context.Background(), trace), w.values["method"], url, body)
	if err != nil {
		return nil, err
	}
	for _, header := range w.headers {
		name, value, _ := strings.Cut(header, ": ")
		made.Header.Add(name, value)
	}
	if body != nil && !w.has("chunked") && !w.has("trailer") {
		made.ContentLength = w.number("body")
	}
	if w.has("expect") {
		made.Header.Set("Expect", "100-continue")
	}
	if w.has("trailer") {
		made.Trailer = http.Header{"X-Checksum": {"abc"}}
	}
	return made, nil
}

func read(w words, body io.Reader, found outcome) error {
	hash := sha256.New()
	var kept strings.Builder
	var length int64
	buffer := make([]byte, 64*1024)
	if w.has("slow") {
		time.Sleep(500 * time.Millisecond)
	}
	for {
		count, err := body.Read(buffer)
		hash.Write(buffer[:count])
		length += int64(count)
		if w.has("text") {
			kept.Write(buffer[:count])
		}
		if w.has("slow") {
			time.Sleep(3 * time.Millisecond)
		}
		if err != nil {
			found["length"] = fmt.Sprint(length)
			found["sha256"] = fmt.Sprintf("%x", hash.Sum(nil))
			if w.has("text") {
				found["text"] = kept.String()
			}
			if err == io.EOF {
				return nil
			}
			return err
		}
	}
}

func class(err error) string {
	text := err.Error()
	for _, pair := range [][2]string{
		{"reset by peer", "reset"}, {"broken pipe", "reset"}, {"EOF", "eof"}, {"deadline", "timeout"},
		{"Timeout", "timeout"}, {"stream error", "stream reset"}, {"GOAWAY", "goaway"},
	} {
		if strings.Contains(text, pair[0]) {
			return pair[1]
		}
	}
	return "other: " + text
}

func ask(c *http.Client, w words, url string) outcome {
	found, interim := outcome{}, sync.Map{}
	made, err := request(w, url, &interim)
	if err != nil {
		return outcome{"error": class(err)}
	}
	limit, cancel := context.WithTimeout(made.Context(), time.Duration(w.number("limit"))*time.Second)
	defer cancel()
	reply, err := c.Do(made.WithContext(limit))
	if err == nil {
		found["status"] = fmt.Sprint(reply.StatusCode)
		found["version"] = fmt.Sprint(reply.ProtoMajor)
		for name, values := range reply.Header {
			found["h."+strings.ToLower(name)] = strings.Join(values, " | ")
		}
		err = read(w, reply.Body, found)
		for name, values := range reply.Trailer {
			found["trailer."+strings.ToLower(name)] = strings.Join(values, " | ")
		}
		reply.Body.Close()
	}
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			found["error"] = "timeout"
		} else {
			found["error"] = class(err)
		}
	}
	if w.has("expect") {
		_, seen := interim.Load(100)
		found["continue"] = fmt.Sprint(seen)
	}
	return found
}

// many asks in parallel on one client, and counts the outcomes.
func many(c *http.Client, w words) outcome {
	var all sync.WaitGroup
	var lock sync.Mutex
	counts := map[string]int{}
	for range w.number("repeat") {
		all.Go(func() {
			one := ask(c, w, w.values["url"])
			lock.Lock()
			defer lock.Unlock()
			counts[one["status"]+" "+one["sha256"]+" "+one["error"]]++
		})
	}
	all.Wait()
	lines := []string{}
	for outcome, count := range counts {
		lines = append(lines, fmt.Sprintf("%d x %s", count, strings.TrimSpace(outcome)))
	}
	sort.Strings(lines)
	return outcome{"outcomes": strings.Join(lines, "; ")}
}

func run(w words, authorities *x509.CertPool) outcome {
	c := client(w.values["mode"], authorities)
	defer c.CloseIdleConnections()
	if w.has("repeat") {
		return many(c, w)
	}
	found := ask(c, w, w.values["url"])
	if w.has("then") {
		next := words{values: map[string]string{"method": "GET", "limit": w.values["limit"]}}
		for name, value := range ask(c, next, w.values["then"]) {
			found["then."+name] = value
		}
	}
	return found
}

func main() {
	authority, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(authority)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 64*1024), 1024*1024)
	for lines.Scan() {
		printed, _ := json.Marshal(run(parse(lines.Text()), authorities))
		fmt.Println(string(printed))
	}
}
