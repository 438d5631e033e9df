// Marks that a thread keeps between calls, all zero by the end of each.
#ifndef TFXCLASS_CORE_CLEARED_IF_THROWN_H_
#define TFXCLASS_CORE_CLEARED_IF_THROWN_H_

#include <exception>

namespace tfxclass {

// Empties the marks where an exception ends the call before it has taken its
// own off: a resize makes them zero again.
template <class Marks>
class ClearedIfThrown {
 public:
  explicit ClearedIfThrown(Marks* marks)
      : marks_(marks), thrown_(std::uncaught_exceptions()) {}
  ClearedIfThrown(const ClearedIfThrown&) = delete;
  ClearedIfThrown& operator=(const ClearedIfThrown&) = delete;
  ~ClearedIfThrown() {
    if (std::uncaught_exceptions() > thrown_) marks_->clear();
  }

 private:
  Marks* const marks_;
  const int thrown_;
};

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_CLEARED_IF_THROWN_H_
