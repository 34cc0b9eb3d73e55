package testkit

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// Proxy passes bytes on to a server and back, until it is frozen, slowed down or cuts its
// connections.
type Proxy struct {
	url    string
	target string
	work   sync.WaitGroup
	frozen sync.RWMutex  // held to pass something on
	closed chan struct{} // when the test ends

	mu    sync.Mutex
	ended bool
	conns []net.Conn
	rate  int // bytes of answers per second, 0: as many as there are
	left  int // bytes of answers until a cut, 0: none is to be
}

// StartProxy starts a proxy to the server of a URL, on a port of the loopback
// interface. It ends with the test.
func StartProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	u, err := url.Parse(target)
	if err != nil {
		tb.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{target: u.Host, closed: make(chan struct{})}
	u.Host = l.Addr().String()
	p.url = u.String()
	p.work.Go(func() { p.accept(l) })
	tb.Cleanup(func() {
		_ = l.Close()
		close(p.closed)
		p.end()
		p.work.Wait()
	})
	return p
}

// URL is the server's, by way of the proxy.
func (p *Proxy) URL() string { return p.url }

// Freeze has the proxy keep what it gets until it is thawed, which may be done again.
// Connections are still accepted. A test that has frozen its proxy has to thaw it.
func (p *Proxy) Freeze() (thaw func()) {
	p.frozen.Lock()
	return sync.OnceFunc(p.frozen.Unlock)
}

// CutAfter has the proxy break all connections once so many more bytes of answers have
// passed, at least one. Connections that are made afterwards are whole.
func (p *Proxy) CutAfter(bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = bytes
}

// Slow has no more bytes of answers pass on a connection in a second. With 0, it is as
// fast as it can be again.
func (p *Proxy) Slow(bytesPerSecond int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate = bytesPerSecond
}

func (p *Proxy) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil || !p.keep(client, server) {
			_ = client.Close()
			continue
		}
		p.work.Go(func() { p.pass(client, server, func(n int) (int, bool) { return n, false }) })
		p.work.Go(func() { p.pass(server, client, p.answer) })
	}
}

func (p *Proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, conns...)
	return !p.ended
}

func (p *Proxy) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.cut()
}

// cut needs the lock.
func (p *Proxy) cut() {
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

// answer returns how many of n bytes may pass, after a wait, and whether that was all.
func (p *Proxy) answer(n int) (int, bool) {
	p.mu.Lock()
	rate, last := p.rate, false
	if rate > 0 {
		n = min(n, max(1, rate/100))
	}
	if p.left > 0 {
		n, last = min(n, p.left), n >= p.left
		p.left -= n
	}
	p.mu.Unlock()
	if rate > 0 {
		select {
		case <-time.After(time.Duration(n) * time.Second / time.Duration(rate)):
		case <-p.closed:
		}
	}
	return n, last
}

// pass passes bytes on, as many at a time as may.
func (p *Proxy) pass(from io.ReadCloser, to io.WriteCloser, may func(n int) (int, bool)) {
	defer to.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		for rest := buffer[:n]; len(rest) > 0; {
			n, last := may(len(rest))
			p.frozen.RLock()
			_, err = to.Write(rest[:n])
			p.frozen.RUnlock()
			if last {
				p.mu.Lock()
				p.cut()
				p.mu.Unlock()
			}
			if err != nil || last {
				return
			}
			rest = rest[n:]
		}
	}
}
