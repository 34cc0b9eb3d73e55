package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
)

// The directory: offices, and who works there.

type office struct{ id, name, district string }

var offices = []office{
	{centralOffice, "Central Office", "Paramaribo"},
	districtOffice("Nickerie"), districtOffice("Commewijne"), districtOffice("Saramacca"), districtOffice("Para"),
}

func districtOffice(district string) office {
	return office{derived("office", district), district + " Office", district}
}

// user is a member of staff.
type user struct{ id, role, officeID string }

// staff returns the nth user of a role in an office.
func staff(role, officeID string, n int) user {
	return user{derived("user", role, officeID, fmt.Sprint(n)), role, officeID}
}

const handlersEach = 3 // of an office

func allStaff() []user {
	all := []user{staff(roleAdmin, centralOffice, 0), staff(roleFraud, centralOffice, 0), staff(roleFraud, centralOffice, 1)}
	for _, o := range offices {
		all = append(all, staff(roleIntake, o.id, 0), staff(roleSupervisor, o.id, 0))
		for n := range handlersEach {
			all = append(all, staff(roleHandler, o.id, n))
		}
	}
	return all
}

const roleFraud = "fraud_officer"

// acting is a user, as events name one.
func (u user) acting() actor {
	return actor{UserID: u.id, Role: u.role, Channel: "office", IPHash: hashIP("10.0.0." + fmt.Sprint(len(u.role)))}
}

// ipKey is what IP addresses are hashed with: without it, all there are could be tried. In earnest it is a secret.
var ipKey = []byte("casework demonstration")

// hashIP is for whoever takes a request: the address itself gets no further.
func hashIP(address string) string {
	h := hmac.New(sha256.New, ipKey)
	_, _ = h.Write([]byte(address)) // never fails
	return hex.EncodeToString(h.Sum(nil))
}

// enterDirectory adds those who are not there yet.
func enterDirectory(ctx context.Context, tx *sql.Tx) error {
	for _, o := range offices {
		if _, err := tx.ExecContext(ctx, `INSERT INTO offices (office_id, name, district) VALUES ($1, $2, $3) ON CONFLICT (office_id) DO NOTHING`, o.id, o.name, o.district); err != nil {
			return err
		}
	}
	for _, u := range allStaff() {
		if _, err := tx.ExecContext(ctx, `INSERT INTO users (user_id, role, office_id) VALUES ($1, $2, $3) ON CONFLICT (user_id) DO NOTHING`, u.id, u.role, u.officeID); err != nil {
			return err
		}
	}
	return nil
}
