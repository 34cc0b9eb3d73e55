package cli_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/waybill-go/waybill/eventing/mongostore"
	"github.com/waybill-go/waybill/internal/testserver"
)

func (e environment) onMongo() bool { return strings.HasPrefix(e["STORE_URL"], "mongodb:") }

// envelopesOnMongo are those of the events that couriers call so.
func (e environment) envelopesOnMongo(t *testing.T, eventID string) (ids bson.A) {
	t.Helper()
	cursor, err := mongoDB(t, e["STORE_URL"]).Collection("processed_events").Find(t.Context(), bson.M{"eventId": eventID})
	must(t, err)
	var docs []struct {
		EnvelopeID string `bson:"envelopeId"`
	}
	must(t, cursor.All(t.Context(), &docs))
	for _, d := range docs {
		ids = append(ids, d.EnvelopeID)
	}
	return ids
}

func (e environment) removeOnMongo(t *testing.T, collection string, filter bson.M) {
	t.Helper()
	removed, err := mongoDB(t, e["STORE_URL"]).Collection(collection).DeleteMany(t.Context(), filter)
	must(t, err)
	if removed.DeletedCount == 0 {
		t.Fatalf("no document of %s is %v", collection, filter)
	}
}

func (e environment) loseOnMongo(t *testing.T, eventIDs []string) {
	t.Helper()
	for _, id := range eventIDs {
		e.removeOnMongo(t, mongostore.InboxCollection, bson.M{"eventId": bson.M{"$in": e.envelopesOnMongo(t, id)}})
		e.removeOnMongo(t, "shipment_events", bson.M{"eventId": id})
	}
}

func (e environment) unkeptOnMongo(t *testing.T, eventID string) {
	t.Helper()
	e.removeOnMongo(t, "event_outbox", bson.M{"eventId": bson.M{"$in": e.envelopesOnMongo(t, eventID)}})
}

// What is done about many dead letters at once, and what a schedule does to one.
func TestPlansOnMongo(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	e["STORE_URL"], e["HMAC_SECRET"], e["ADMIN_TOKEN"] = testserver.MongoURL(t), "hunter2-hmac", "hunter2-token"
	g := e.gateway(t, "--json")
	e.ok(t, "send", samples, "--url", decode[struct{ URL string }](t, g.stdout.String()).URL)
	e.quiet(t, 13)
	if text := e.ok(t, "dlq", "groups"); !strings.Contains(text, "1 dead letter  shipment-projection  INVALID_STATUS") {
		t.Errorf("groups: %s", text)
	}
	if text := e.ok(t, "dlq", "export"); !strings.Contains(text, `"eventId":"evt_141"`) || strings.Count(text, "\n") != 1 {
		t.Errorf("export: %s", text)
	}
	plan := t.TempDir() + "/plan.json"
	address := e["STORE_URL"]
	e["STORE_URL"] = address + "?appName=a-token"
	e.ok(t, "dlq", "plan", "--reason", "INVALID_STATUS", "--out", plan)
	e["STORE_URL"] = address
	if planned, err := os.ReadFile(plan); err != nil || strings.Contains(string(planned), "token") {
		t.Errorf("the plan tells a secret: %s, %v", planned, err)
	}
	if text := e.ok(t, "dlq", "apply", plan, "--yes"); !strings.HasPrefix(text, "1 of 1 dead letter replayed") {
		t.Errorf("apply: %s", text)
	}
	again := eventually(t, func() letter { return object[letter](t, e, "dlq", "show", "evt_141") }, func(l letter) bool { return l.Status == "pending" })
	if again.AttemptCount != 2 || len(again.History) != 2 {
		t.Errorf("after the replay: %+v", again)
	}
	e.ok(t, "dlq", "schedule", "evt_141", "--at", "2h")
	if text := e.ok(t, "trace", "evt_141"); !regexp.MustCompile(`next +it is replayed by itself at 20`).MatchString(text) {
		t.Errorf("trace of what is scheduled: %s", text)
	}

	// Others of the library work on the same database.
	waybill := environment{programKey: "waybill", "USER": "anna"}
	if text := waybill.ok(t, "--store", e["STORE_URL"], "dlq", "list"); !strings.Contains(text, "INVALID_STATUS") {
		t.Errorf("waybill dlq list: %s", text)
	}
	if r := waybill.run(t, "--store", testserver.MongoURL(t), "dlq", "list"); r.code != 1 || !strings.Contains(r.stderr, "waybill --store URL migrate up") {
		t.Errorf("waybill dlq list of an empty database: %+v", r)
	}
}

func TestMigrateMongo(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	e["STORE_URL"] = testserver.MongoURL(t)
	if text := e.ok(t, "migrate", "status"); !regexp.MustCompile(`processed_events.idempotencyKey_1 +no: run gateway migrate up\n`).MatchString(text) ||
		!regexp.MustCompile(`processed_events.expiresAt_1 +no: run gateway migrate up, which cannot be done on FerretDB, nor need be\n`).MatchString(text) {
		t.Errorf("before: %s", text)
	}
	if text := e.ok(t, "migrate", "up"); !strings.Contains(text, "applied active_shipments.orderId_1\n") || !strings.HasSuffix(text, "The schema is up to date.\n") {
		t.Errorf("up: %s", text)
	}
	if text := e.ok(t, "migrate", "status"); !regexp.MustCompile(`processed_events.idempotencyKey_1 +yes\n`).MatchString(text) {
		t.Errorf("after: %s", text)
	}
	if text := e.ok(t, "migrate", "up"); strings.Contains(text, "applied") {
		t.Errorf("again: %s", text)
	}
	if r := e.run(t, "migrate", "sql"); r.code != 1 || !strings.Contains(r.stderr, "MongoDB has no statements") {
		t.Errorf("sql: %+v", r)
	}
}

// Whoever starts a process with an address at which no MongoDB answers is told so, soon and without the password.
func TestNoMongo(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, address, want string
		code                int
	}{
		{"down", "mongodb://u:hunter2@127.0.0.1:1/waybill", `the database "mongodb://u:xxxxx@127.0.0.1:1/waybill" (STORE_URL) does not answer: `, 1},
		{"no database", "mongodb://u:hunter2@127.0.0.1:1/", "(STORE_URL) must be sqlite:FILE, postgres://… or mongodb://HOST/DATABASE, as in mongodb://user:password@host", 2},
		{"mistyped", "mongodb://u:hunter2/@127.0.0.1:1/waybill", "special characters of the password as %XX", 2},
		{"another scheme", "mongo://u:hunter2@127.0.0.1:1/waybill", "(STORE_URL) must be sqlite:FILE, postgres://… or mongodb://", 2},
	} {
		for _, command := range []string{"run", "api", "dispatch", "worker", "dlq list", "outbox stats", "audit", "trace evt_1", "migrate status"} {
			t.Run(test.name+": "+command, func(t *testing.T) {
				t.Parallel()
				e := environment{"STORE_URL": test.address, "HTTP_ADDR": "127.0.0.1:0", "USER": "anna"}
				switch command {
				case "run", "api":
					e["HMAC_SECRET"], e["ADMIN_TOKEN"] = "hunter2-hmac", "hunter2-token"
				case "dispatch", "worker":
					e["BROKER_URL"] = "redis://127.0.0.1:1/0"
				}
				began := time.Now()
				r := e.run(t, strings.Fields(command)...)
				if r.code != test.code || !strings.Contains(r.stderr, test.want) || r.stdout != "" || strings.Contains(r.stderr, "hunter2") {
					t.Errorf("%+v; want exit code %d, and %q", r, test.code, test.want)
				}
				const soon = 25 * time.Second // the driver's own 30 would not do; the machine may be busy
				if took := time.Since(began); took > soon {
					t.Errorf("it took %s", took)
				}
			})
		}
	}
	if text := (environment{"STORE_URL": "mongodb://u:hunter2@db/waybill?tlsCertificateKeyFilePassword=hunter2"}).ok(t, "config"); strings.Contains(text, "hunter2") ||
		!strings.Contains(text, "mongodb://u:xxxxx@db/waybill?…") {
		t.Errorf("config: %s", text)
	}
}
