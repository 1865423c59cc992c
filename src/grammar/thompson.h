#pragma once

#include "grammar/expression.h"

namespace winnow::grammar {

/// Thompson's construction: an expression becomes nodes that edges and empty steps join. `Self`,
/// which derives from this, has
///   int add();                             a new node, without edges; throws when there are too
///   many void join(int from, int to);           an empty step int put_leaf(const Expression&,
///   int);  as put(), of every kind but sequence, choice and repeat
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
    for (int i = 0; i < expression.least; ++i) {
      from = put(part, from);
    }
    const int end = self().add();
    self().join(from, end);
    if (expression.most < 0) {
      const int loop = begin(from);
      self().join(loop, end);
      self().join(put(part, loop), loop);
      return end;
    }
    for (int i = expression.least; i < expression.most; ++i) {
      from = put(part, begin(from));
      self().join(from, end);
    }
    return end;
  }
};

}  // namespace winnow::grammar
