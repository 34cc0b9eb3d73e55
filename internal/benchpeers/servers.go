package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/waybill-go/waybill/internal/testserver"
)

// connections is what the contestants with the most writers need, and some.
const connections = 24

// servers are this process's own, and end with it.
type servers struct {
	postgres *testserver.PostgresServer
	redis    *testserver.RedisServer
}

// startServers starts both. Redis keeps nothing on disk: what its persistence
// costs is the same for all, and would hide the rest.
func startServers(ctx context.Context) (*servers, error) {
	postgres, err := testserver.StartPostgres(ctx, "")
	if err != nil {
		return nil, err
	}
	redisServer, err := testserver.StartRedis(ctx, "", "appendonly no")
	if err != nil {
		return nil, errors.Join(err, postgres.Close())
	}
	return &servers{postgres, redisServer}, nil
}

func (s *servers) close() error {
	return errors.Join(s.redis.Close(), s.postgres.Close())
}

// exec runs statements on the server's first database.
func (s *servers) exec(ctx context.Context, statements ...string) error {
	conn, err := pgx.Connect(ctx, s.postgres.URL())
	if err != nil {
		return fmt.Errorf("postgres: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("postgres: %s: %w", statement, err)
		}
	}
	return nil
}

// database makes an empty one and returns its URL and what drops it.
func (s *servers) database(ctx context.Context) (dbURL string, drop func() error, err error) {
	u, err := url.Parse(s.postgres.URL())
	if err != nil {
		return "", nil, fmt.Errorf("postgres: %w", err)
	}
	name := "bench_" + strings.ToLower(rand.Text())
	u.Path = "/" + name
	if err := s.exec(ctx, "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		return "", nil, err
	}
	return u.String(), func() error {
		return s.exec(context.WithoutCancel(ctx), "DROP DATABASE "+name+" WITH (FORCE)")
	}, nil
}

// arena is where one contestant runs once: an empty database and an empty Redis.
type arena struct {
	dbURL     string
	pool      *pgxpool.Pool
	redis     *redis.Client
	published *tally
	events    []event

	drop func() error
}

// open makes an arena. configure may change the pool's settings.
func (s *servers) open(ctx context.Context, events []event, configure ...func(*pgxpool.Config)) (_ *arena, err error) {
	a := &arena{events: events, published: &tally{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.close())
		}
	}()
	if a.dbURL, a.drop, err = s.database(ctx); err != nil {
		return nil, err
	}
	if a.pool, err = newPool(ctx, a.dbURL, configure...); err != nil {
		return nil, err
	}
	options, err := redis.ParseURL(s.redis.URL())
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	options.ContextTimeoutEnabled = true // redisbroker insists on it
	a.redis = redis.NewClient(options)
	a.redis.AddHook(a.published)
	if err = a.redis.FlushAll(ctx).Err(); err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	return a, nil
}

func newPool(ctx context.Context, dbURL string, configure ...func(*pgxpool.Config)) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dbURL)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	config.MaxConns = connections
	for _, change := range configure {
		change(config)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	return pool, nil
}

func (a *arena) close() error {
	var err error
	if a.redis != nil {
		err = a.redis.Close()
		if errors.Is(err, redis.ErrClosed) { // Watermill's publisher closes its client
			err = nil
		}
	}
	if a.pool != nil {
		a.pool.Close()
	}
	if a.drop != nil {
		err = errors.Join(err, a.drop())
	}
	return err
}
