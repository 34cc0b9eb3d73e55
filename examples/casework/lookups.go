package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/waybill-go/waybill/router/routing"
)

// What routes.yaml looks up. Both are read before the consumer's transaction begins, so that a
// slow answer holds no lock. timeout, cache and what to do without an answer are said in
// routes.yaml.

type (
	foundCase struct {
		CitizenID      string `json:"citizen_id"`
		OfficeID       string `json:"office_id"`
		FraudRiskLevel string `json:"fraud_risk_level"`
	}
	foundCitizen struct {
		District    string      `json:"district"`
		Preferences preferences `json:"notification_preferences"`
	}
	preferences struct {
		SMS bool `json:"sms"`
	}
	foundUser struct {
		Role string `json:"role"`
	}
	foundOffice struct {
		District string `json:"district"`
	}
)

func lookups(db *sql.DB, s *switches) map[string]routing.LookupFunc {
	return map[string]routing.LookupFunc{
		"case": lookup(s, "case", func(ctx context.Context, id string) (c foundCase, err error) {
			// A case that has not been screened yet is of low risk.
			err = db.QueryRowContext(ctx, `SELECT c.citizen_id, c.office_id, coalesce(r.risk_level, 'LOW')
				FROM cases c LEFT JOIN risk_profiles r ON r.case_id = c.case_id WHERE c.case_id = $1`, id).Scan(&c.CitizenID, &c.OfficeID, &c.FraudRiskLevel)
			return c, err
		}),
		"citizen": lookup(s, "citizen", func(ctx context.Context, id string) (c foundCitizen, err error) {
			err = db.QueryRowContext(ctx, `SELECT district, sms FROM citizens WHERE citizen_id = $1`, id).Scan(&c.District, &c.Preferences.SMS)
			return c, err
		}),
		"user": lookup(s, "user", func(ctx context.Context, id string) (u foundUser, err error) {
			err = db.QueryRowContext(ctx, `SELECT role FROM users WHERE user_id = $1`, id).Scan(&u.Role)
			return u, err
		}),
		"office": lookup(s, "office", func(ctx context.Context, id string) (o foundOffice, err error) {
			err = db.QueryRowContext(ctx, `SELECT district FROM offices WHERE office_id = $1`, id).Scan(&o.District)
			return o, err
		}),
	}
}

func lookup[T any](s *switches, name string, find func(ctx context.Context, id string) (T, error)) routing.LookupFunc {
	return func(ctx context.Context, id string) (any, error) {
		if err := s.pass(ctx, "lookup "+name, id); err != nil {
			return nil, err
		}
		found, err := find(ctx, id)
		if errors.Is(err, sql.ErrNoRows) {
			return nil, fmt.Errorf("there is no %s %s", name, id)
		}
		return found, err
	}
}

// centralOffice took in all applications before the districts did.
const centralOffice = "0ff1ce00-0000-4000-8000-000000000000"

// upcasters bring payloads of older versions to the newest.
var upcasters = []routing.Upcaster{{EventType: "case_created", From: 1, Upcast: addCentralOffice}}

// addCentralOffice makes version 2 of a case_created of version 1. What it does not know it keeps.
func addCentralOffice(payload json.RawMessage) (json.RawMessage, error) {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(payload, &fields); err != nil {
		return nil, err
	}
	if _, there := fields["intake_office_id"]; !there {
		fields["intake_office_id"] = json.RawMessage(`"` + centralOffice + `"`)
	}
	return json.Marshal(fields)
}
