#pragma once

#include "grammar/expression.h"

namespace winnow::grammar {

/// Thompson's construction: an expression becomes nodes that edges and empty steps join. `Self`,
/// which derives from this, has
/// - int add(): a new node, without edges; throws when there are too many,
/// - void join(int from, int to): an empty step,
/// - int put_leaf(const Expression&, int from): as put(), of kinds without parts,
/// - void copied(const Expression& repeat, int first, int copies, int end): all nodes from `first`
///   on are copies of a repetition's part; texts go on at `end`.
template <class Self>
class Thompson {
 public:
  /// The node where a text of `expression` that begins at `from` ends.
  int put(const Expression& expression, int from) {
    switch (expression.kind) {
      case Expression::Kind::sequence:
        for (const ExpressionPtr& part : expression.parts) {
          from = put(*part, from);
        }
        return from;
      case Expression::Kind::choice: {
        const int to = self().add();
        for (const ExpressionPtr& part : expression.parts) {
          self().join(put(*part, begin(from)), to);
        }
        return to;
      }
      case Expression::Kind::repeat:
        return put_repeat(expression, from);
      default:
        return self().put_leaf(expression, from);
    }
  }

 private:
  Self& self() { return static_cast<Self&>(*this); }

  // A part has a first node of its own, so that a loop in it leads nowhere else.
  int begin(int from) {
    const int node = self().add();
    self().join(from, node);
    return node;
  }

  int put_repeat(const Expression& expression, int from) {
    const Expression& part = *expression.parts[0];
    const int end = self().add();
    const int copies = expression.most < 0 ? expression.least : expression.most;
    for (int i = 0; i < copies; ++i) {
      if (i >= expression.least) {
        self().join(from, end);
      }
      from = put(part, begin(from));
    }
    self().copied(expression, end + 1, copies, end);
    if (expression.most < 0) {
      const int loop = begin(from);
      self().join(put(part, loop), loop);
      from = loop;
    }
    self().join(from, end);
    return end;
  }
};

}  // namespace winnow::grammar
