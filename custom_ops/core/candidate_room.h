// Places for candidates, of those that the targets of a step leave.
#ifndef TFXCLASS_CORE_CANDIDATE_ROOM_H_
#define TFXCLASS_CORE_CANDIDATE_ROOM_H_

#include <cmath>
#include <cstdint>

#include "core/host_device.h"

namespace tfxclass {

// A share in [0, 1] of so many. Below 1 it leaves one for the fill: without any
// a sum over the classes is no estimate.
TFXCLASS_HD inline int64_t CandidateRoom(int64_t left, float share) {
  if (left <= 0) return 0;
  const int64_t part = static_cast<int64_t>(ceilf(share * left));
  return part < left ? part : left - (share < 1.0f);
}

// The part of the room that is taken; 0 where there is none.
inline float PlacesUsed(int64_t taken, int64_t left, float share) {
  const int64_t room = CandidateRoom(left, share);
  return room > 0 ? static_cast<float>(taken) / room : 0.0f;
}

}  // namespace tfxclass

#endif  // TFXCLASS_CORE_CANDIDATE_ROOM_H_
