"""The only scheduler: one timetable of what runs when, one row a run, one leader."""
