package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

const loaderCommand = "gateway-load"

// loadPlan is what the client does.
type loadPlan struct {
	Addr        string
	Connections int
	WarmUp      time.Duration
	Duration    time.Duration
}

// loadReport is what the client has measured after the warm-up.
type loadReport struct {
	Events        int
	Seconds       float64
	P50, P99, Max float64 // ms
	CPU           time.Duration
}

// load runs the client as a process of its own, and looks at the CPU times when it begins
// to measure and when it has.
func (g *gatewayBench) load(ctx context.Context, baseURL string, usage func() (usages, error)) (l loadReport, before, after usages, err error) {
	self, err := os.Executable()
	if err != nil {
		return l, before, after, fmt.Errorf("find this program: %w", err)
	}
	u, err := url.Parse(baseURL)
	if err != nil {
		return l, before, after, err
	}
	plan, err := json.Marshal(loadPlan{u.Host, g.connections, g.warmUp, g.duration})
	if err != nil {
		return l, before, after, err
	}
	cmd := exec.CommandContext(ctx, self, loaderCommand, string(plan)) //nolint:gosec // G204: ourselves
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if err != nil {
		return l, before, after, err
	}
	if err := cmd.Start(); err != nil {
		return l, before, after, fmt.Errorf("start the client: %w", err)
	}
	said := bufio.NewReader(out)
	look := func(u *usages) {
		_, readErr := said.ReadString('\n')
		if err == nil {
			err = readErr
		}
		if err == nil {
			*u, err = usage()
		}
	}
	look(&before)
	look(&after)
	if err == nil {
		err = json.NewDecoder(said).Decode(&l)
	}
	if waitErr := cmd.Wait(); err != nil || waitErr != nil {
		return l, before, after, fmt.Errorf("the client: %w\n%s", errors.Join(err, waitErr), complaints.String())
	}
	return l, before, after, nil
}

// runLoader is the client's process. It writes a line when it begins to measure, one when
// it has, and its report.
func runLoader(ctx context.Context, args []string, out io.Writer, _ *log.Logger) error {
	var plan loadPlan
	if len(args) != 1 {
		return errors.New(loaderCommand + " is a part of gateway, which runs it")
	}
	if err := json.Unmarshal([]byte(args[0]), &plan); err != nil {
		return fmt.Errorf("the plan: %w", err)
	}
	report, err := drive(ctx, plan, out)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(report)
}

// maxRate bounds how many requests are made beforehand.
const maxRate = 40_000

// requests are signed beforehand: to sign is the courier's work, not the gateway's.
type requests struct {
	bytes []byte
	size  int // of each: they are equally long
}

func (r requests) count() int      { return len(r.bytes) / r.size }
func (r requests) at(i int) []byte { return r.bytes[i*r.size : (i+1)*r.size] }

func makeRequests(addr string, n int, now time.Time) requests {
	var r requests
	timestamp := strconv.FormatInt(now.Unix(), 10)
	for i := range n {
		// Keys come in no order, which is the harder case for a database's indexes.
		key := fmt.Sprintf("%016x", (uint64(i)+1)*0x9e3779b97f4a7c15)
		body := `{"eventId":"evt_` + key + `","eventType":"shipment.status.updated","occurredAt":"2026-02-26T12:00:00Z","source":"courier-x",` +
			`"idempotencyKey":"courier-x:evt_` + key + `","payload":{"shipmentId":"shp_` + key[:6] + `","orderId":"ord_` + key[6:12] +
			`","status":"out_for_delivery"}}`
		head := "POST /v1/events/courier HTTP/1.1\r\nHost: " + addr + "\r\nContent-Type: application/json\r\nX-Signature-Timestamp: " + timestamp +
			"\r\nX-Signature: " + hex.EncodeToString(signatureOf(timestamp, []byte(body))) + "\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n"
		if r.size == 0 {
			r.size = len(head) + len(body)
			r.bytes = make([]byte, 0, n*r.size)
		}
		r.bytes = append(append(r.bytes, head...), body...)
	}
	return r
}
