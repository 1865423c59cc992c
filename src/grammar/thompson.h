#pragma once

#include "grammar/expression.h"

namespace winnow::grammar {

/// Thompson's construction: an expression becomes nodes with edges and empty steps. `Self` derives
/// from this and has
/// - int add(): adds a node without edges; throws if there are too many,
/// - void join(int from, int to): adds an empty step,
/// - int put_leaf(const Expression&, int from): like put(), for kinds without parts,
/// - void copied(const Expression& repeat, int first, int copies, int end): called when all nodes
///   from `first` on are copies of a repetition's part; texts continue at `end`.
template <class Self>
class Thompson {
 public:
  /// Adds a text of `expression` that begins at `from`; returns the node where it ends.
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

  // Gives a part its own first node, so that a loop within it affects nothing else.
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
