package negotiate

const MaxAnswers = maxAnswers

func (l *Languages) Remembered() int { return len(*l.answers.Load()) }
