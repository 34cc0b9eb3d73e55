package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// drive keeps each connection busy, one request at a time.
func drive(ctx context.Context, plan loadPlan, out io.Writer) (report loadReport, err error) {
	d := driver{requests: makeRequests(plan.Addr, int((plan.WarmUp+plan.Duration).Seconds()*maxRate)+plan.Connections, time.Now())}
	conns := make([]net.Conn, plan.Connections)
	for i := range conns {
		if conns[i], err = (&net.Dialer{}).DialContext(ctx, "tcp", plan.Addr); err != nil {
			return report, err
		}
		defer conns[i].Close()
	}
	latencies := make([][]time.Duration, len(conns))
	errs := make([]error, len(conns))
	var running sync.WaitGroup
	for i, conn := range conns {
		running.Go(func() { latencies[i], errs[i] = d.work(conn) })
	}
	pause := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	pause(plan.WarmUp)
	cpu, err := cpuTime()
	if err != nil {
		return report, err
	}
	began := time.Now()
	d.measuring.Store(true)
	_, beginErr := fmt.Fprintln(out, "begin")
	pause(plan.Duration)
	d.measuring.Store(false)
	report.Seconds = time.Since(began).Seconds()
	cpuAfter, err := cpuTime()
	_, endErr := fmt.Fprintln(out, "end")
	d.stopped.Store(true)
	running.Wait()
	if err := errors.Join(append(errs, err, beginErr, endErr, context.Cause(ctx))...); err != nil {
		return report, err
	}
	all := slices.Concat(latencies...)
	slices.Sort(all)
	report.Events, report.CPU = len(all), cpuAfter-cpu
	if len(all) == 0 {
		return report, errors.New("nothing was accepted")
	}
	at := func(q float64) float64 { return all[int(q*float64(len(all)-1))].Seconds() * 1000 }
	report.P50, report.P99, report.Max = at(0.5), at(0.99), at(1)
	return report, nil
}

type driver struct {
	requests  requests
	next      atomic.Int64
	measuring atomic.Bool
	stopped   atomic.Bool
}

// work returns how long each answer took that came while it was measured.
func (d *driver) work(conn net.Conn) (latencies []time.Duration, err error) {
	answer := make([]byte, 4096)
	for !d.stopped.Load() {
		i := int(d.next.Add(1)) - 1
		if i >= d.requests.count() {
			return nil, fmt.Errorf("more than %d events a second: raise maxRate", maxRate)
		}
		began := time.Now()
		if _, err := conn.Write(d.requests.at(i)); err != nil {
			return nil, err
		}
		got, err := readAnswer(conn, answer)
		if err != nil {
			return nil, err
		}
		if !bytes.HasPrefix(got, []byte("HTTP/1.1 202 ")) {
			return nil, fmt.Errorf("answered: %s", got)
		}
		if d.measuring.Load() {
			latencies = append(latencies, time.Since(began))
		}
	}
	return latencies, nil
}

// readAnswer reads one answer, whose end it knows by its length.
func readAnswer(conn net.Conn, buffer []byte) ([]byte, error) {
	for n := 0; ; {
		m, err := conn.Read(buffer[n:])
		if err != nil {
			return nil, err
		}
		n += m
		if end := answerEnd(buffer[:n]); end > 0 && n >= end {
			return buffer[:n], nil
		}
		if n == len(buffer) {
			return nil, fmt.Errorf("a long answer: %s", buffer)
		}
	}
}

// answerEnd returns how long the answer is whose beginning is given, 0 if that is too short.
func answerEnd(b []byte) int {
	head := bytes.Index(b, []byte("\r\n\r\n"))
	const name = "Content-Length: "
	at := bytes.Index(b, []byte(name))
	if head < 0 || at < 0 || at > head {
		return 0
	}
	length := 0
	for _, c := range b[at+len(name):] {
		if c < '0' || c > '9' {
			break
		}
		length = 10*length + int(c-'0')
	}
	return head + 4 + length
}
