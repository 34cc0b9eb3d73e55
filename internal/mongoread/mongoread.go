// Package mongoread reads documents of MongoDB: all that are asked for, or an error.
package mongoread

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Tries is how often documents are read in all, if the server forgets the cursor each time.
const Tries = 3

// All reads all documents that a filter selects; anew, if the server forgets the cursor meanwhile.
func All[T any](ctx context.Context, c *mongo.Collection, filter any, opts ...options.Lister[options.FindOptions]) (docs []T, err error) {
	for range Tries {
		var cursor *mongo.Cursor
		if cursor, err = c.Find(ctx, filter, opts...); err != nil {
			break
		}
		docs = nil
		if err = cursor.All(ctx, &docs); err == nil || !CursorLost(err) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	return docs, nil
}

// One reads a document; nil: there is none.
func One[T any](ctx context.Context, c *mongo.Collection, filter any, opts ...options.Lister[options.FindOneOptions]) (*T, error) {
	doc := new(T)
	err := c.FindOne(ctx, filter, opts...).Decode(doc)
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return doc, nil
}

// CursorLost reports whether the server does not know a cursor any more: another has taken its place, or, of FerretDB, the connection is
// closed that the cursor was made on.
func CursorLost(err error) bool {
	const cursorNotFound = 43
	var e mongo.ServerError
	return errors.As(err, &e) && e.HasErrorCode(cursorNotFound)
}
